// The choice of a token, as every device makes it.
#include "models/ops/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/ops/philox.hpp"
#include "tests/catch.hpp"
#include "tests/ops/reference.hpp"
#include "tests/ops/sampling_params.hpp"

namespace sluice::test {
namespace {

using Ids = std::vector<std::int32_t>;

Ids kept(const std::vector<float>& logits, const SamplingParams& params,
         const Ids& suppressed = {}) {
  Sampler sampler;
  Ids ids;
  for (const Candidate& candidate : sampler.filter(logits, params, suppressed)) {
    ids.push_back(candidate.id);
  }
  return ids;
}

// Probabilities as logits.
std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

}  // namespace

TEST_CASE("philox gives the published numbers", "[sample]") {
  CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
        PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(uniform(0, 0) == static_cast<double>(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0);
}

TEST_CASE("the filters keep what hand calculation keeps", "[sample]") {
  // In order of probability: 3 (0.4), 1 (0.3), 0 (0.15), 4 (0.1), 2 (0.05).
  const auto logits = logs({0.15, 0.3, 0.05, 0.4, 0.1});
  CHECK(kept(logits, with(1)) == Ids{3, 1, 0, 4, 2});
  CHECK(kept(logits, with(1, 2)) == Ids{3, 1});
  CHECK(kept(logits, with(1, 99)) == Ids{3, 1, 0, 4, 2});
  CHECK(kept(logits, with(1, 0, 0.39f)) == Ids{3});
  CHECK(kept(logits, with(1, 0, 0.41f)) == Ids{3, 1});
  CHECK(kept(logits, with(1, 0, 0.69f)) == Ids{3, 1});
  CHECK(kept(logits, with(1, 0, 0.71f)) == Ids{3, 1, 0});
  CHECK(kept(logits, with(1, 0, 0.0f)) == Ids{3});
  CHECK(kept(logits, with(1, 0, 1, 0.3f)) == Ids{3, 1, 0});  // 0.15 / 0.4 = 0.375
  CHECK(kept(logits, with(1, 0, 1, 0.38f)) == Ids{3, 1});
  CHECK(kept(logits, with(1, 0, 1, 1.0f)) == Ids{3});
  // top-p sees what top-k left: 0.4 / 0.85 = 0.47, 0.7 / 0.85 = 0.82.
  CHECK(kept(logits, with(1, 3, 0.8f)) == Ids{3, 1});
  CHECK(kept(logits, with(1, 3, 0.83f)) == Ids{3, 1, 0});
  // Temperature comes first: squared, 0.16 0.09 0.0225 0.01 0.0025 of 0.285, so 0.56, 0.88, 0.956.
  CHECK(kept(logits, with(0.5f, 0, 0.55f)) == Ids{3});
  CHECK(kept(logits, with(0.5f, 0, 0.87f)) == Ids{3, 1});
  CHECK(kept(logits, with(0.5f, 0, 1, 0.2f)) == Ids{3, 1});
  CHECK(kept(logits, with(1, 0, 1, 0.0f), {3, 4}) == Ids{1, 0, 2});
}

TEST_CASE("ties stay in order of id and top-k keeps what equals its last", "[sample]") {
  const std::vector<float> logits{1, 2, 2, -0.0f, 2, 0.0f};
  CHECK(kept(logits, with(1)) == Ids{1, 2, 4, 0, 3, 5});
  CHECK(kept(logits, with(1, 1)) == Ids{1, 2, 4});
  CHECK(kept(logits, with(1, 5)) == Ids{1, 2, 4, 0, 3, 5});
  CHECK(greedy(logits, {}) == 1);
  CHECK(greedy(logits, Ids{1, 2}) == 4);
  CHECK_THROWS_WITH(greedy(std::vector<float>{1, 2}, Ids{0, 1}), "all 2 tokens are suppressed");
}

TEST_CASE("a large vocabulary is sorted as far as it is looked at and no differently", "[sample]") {
  Seeded random(20260140);
  CAPTURE(random.seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(20000);
  for (float& logit : logits) logit = std::round(normal(random.rng) * 64) / 64;  // many ties
  Ids order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  CHECK(kept(logits, with(1)) == order);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) / 1.5);
  for (const float top_p : {0.1f, 0.5f, 0.95f}) {
    double sum = 0;
    std::size_t count = 0;
    while (sum < top_p * total) {
      sum += std::exp(static_cast<double>(logits[static_cast<std::size_t>(order[count++])]) / 1.5);
    }
    CHECK(kept(logits, with(1.5f, 0, top_p)) ==
          Ids(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count)));
  }
  // The drawn token is where the running sum passes the random number, filtered or not.
  Sampler sampler;
  for (const double at : {0.0, 0.001, 0.3, 0.77, 0.9999}) {
    double sum = 0;
    std::size_t count = 0;
    while (sum <= at * total) {
      sum += std::exp(static_cast<double>(logits[static_cast<std::size_t>(order[count++])]) / 1.5);
    }
    CHECK(sampler.choose(logits, with(1.5f), {}, at) == order[count - 1]);
  }
}

}  // namespace sluice::test
