#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "models/ops/cpu_kernels.hpp"
#include "models/ops/philox.hpp"
#include "models/ops/sampling.hpp"
#include "tests/catch.hpp"
#include "tests/ops/reference.hpp"

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

SamplingParams with(float temperature, std::int32_t top_k = 0, float top_p = 1, float min_p = 0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

// Probabilities as logits.
std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// The state of a few sequences as a device holds it.
struct State {
  std::vector<float> logits;
  std::uint32_t vocab;
  Ids sequences;
  std::vector<SamplingParams> params;
  Ids stop_ids, next, lengths, generated, chosen;

  State(std::vector<float> of, std::uint32_t vocabulary, Ids rows, std::size_t count)
      : logits(std::move(of)),
        vocab(vocabulary),
        sequences(std::move(rows)),
        params(count),
        next(count, -1),
        lengths(count, 10),
        generated(count, 0),
        chosen(sequences.size(), -1) {}

  void run() {
    SampleArgs args;
    args.logits = logits.data();
    args.type = DType::f32;
    args.rows = static_cast<std::uint32_t>(sequences.size());
    args.vocab = vocab;
    args.sequences = sequences.data();
    args.params = params.data();
    args.stop_ids = stop_ids.data();
    args.stop_count = static_cast<std::uint32_t>(stop_ids.size());
    args.next_tokens = next.data();
    args.lengths = lengths.data();
    args.generated = generated.data();
    args.chosen = chosen.data();
    CpuKernels().sample(args, nullptr);
  }
};

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

TEST_CASE("sample draws with the probabilities that the filters leave", "[sample]") {
  constexpr std::uint64_t kSeed = 20260141;
  CAPTURE(kSeed);
  constexpr int kDraws = 100000;
  const std::vector<float> logits{0.5f, 2.0f, -1.0f, 1.0f, 1.9f, -3.0f, 0.0f, 1.2f};
  struct Case {
    SamplingParams params;
    Ids ids;
  };
  // What stays is seen by hand from the probabilities at that temperature.
  const Case cases[] = {{with(1), {1, 4, 7, 3, 0, 6, 2, 5}},
                        {with(0.7f), {1, 4, 7, 3, 0, 6, 2, 5}},
                        {with(1.3f, 5), {1, 4, 7, 3, 0}},
                        {with(1, 0, 0.8f), {1, 4, 7, 3}},
                        {with(1, 0, 1, 0.2f), {1, 4, 7, 3, 0}}};
  for (const Case& c : cases) {
    CHECK(kept(logits, c.params) == c.ids);
    std::map<std::int32_t, double> expected;
    double total = 0;
    for (const std::int32_t id : c.ids) {
      total += expected[id] = std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) /
                                       c.params.temperature);
    }
    State state(logits, 8, {0}, 1);
    state.params[0] = c.params;
    state.params[0].seed = kSeed;
    std::map<std::int32_t, int> drawn;
    for (int i = 0; i < kDraws; ++i) {
      state.run();
      ++drawn[state.chosen[0]];
    }
    double chi_squared = 0;
    int counted = 0;
    for (const auto& [id, weight] : expected) {
      const double mean = weight / total * kDraws;
      chi_squared += std::pow(drawn[id] - mean, 2) / mean;
      counted += drawn[id];
    }
    CHECK(counted == kDraws);
    // 99.9 % of seven degrees of freedom stay below 24.3; fewer degrees, lower.
    CHECK(chi_squared < 24.3);
    CHECK(state.generated[0] == kDraws);
    CHECK(state.lengths[0] == kDraws + 10);
  }
}

TEST_CASE("what sample draws depends on the sequence alone", "[sample]") {
  Seeded random(20260142);
  CAPTURE(random.seed);
  constexpr std::uint32_t kVocab = 300;
  const Tensor values = Tensor::random(DType::f32, 4 * kVocab, random.rng, 2);
  std::vector<float> logits(4 * kVocab);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(values.get(i));
  State batch(logits, kVocab, {3, 0, 2, 1}, 5);
  for (std::size_t s = 0; s < 5; ++s) {
    batch.params[s] = with(0.9f, 50, 0.9f);
    batch.params[s].seed = 100 + s;
    batch.generated[s] = static_cast<std::int32_t>(s);
  }
  State before = batch;
  batch.run();
  for (std::size_t r = 0; r < 4; ++r) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(r * kVocab);
    State alone({first, first + kVocab}, kVocab, {0}, 1);
    const auto sequence = static_cast<std::size_t>(batch.sequences[r]);
    alone.params[0] = before.params[sequence];
    alone.generated[0] = before.generated[sequence];
    alone.run();
    CHECK(alone.chosen[0] == batch.chosen[r]);
    CHECK(batch.next[sequence] == batch.chosen[r]);
    CHECK(batch.lengths[sequence] == 11);
    CHECK(batch.generated[sequence] == before.generated[sequence] + 1);
  }
  CHECK(batch.next[4] == -1);
  CHECK(batch.lengths[4] == 10);
}

TEST_CASE("sample keeps stop ids back until enough tokens are there", "[sample]") {
  State state({1, 5, 3, 4}, 4, {0}, 1);
  state.stop_ids = {1, 3};
  state.params[0].min_new_tokens = 2;
  Ids tokens;
  for (int i = 0; i < 3; ++i) {
    state.run();
    tokens.push_back(state.chosen[0]);
  }
  CHECK(tokens == Ids{2, 2, 1});
}

TEST_CASE("sample refuses logits that are not finite and moves no sequence on", "[sample]") {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    State state({1, 2, 3, 4, bad, 6}, 3, {1, 0}, 2);
    CHECK_THROWS_WITH(
        state.run(),
        "the logits of sequence 0 at position 10 are not finite (the first is token "
        "1 of 3): the model's f32 activations overflowed, or its weights are damaged");
    CHECK(state.next == Ids{-1, -1});
    CHECK(state.lengths == Ids{10, 10});
  }
}

TEST_CASE("sample reads bf16 and f16 logits", "[sample]") {
  Seeded random(20260143);
  CAPTURE(random.seed);
  for (const DType type : kTypes) {
    Tensor logits = Tensor::random(type, 1000, random.rng);
    logits.set(617, 30);
    const std::int32_t sequence = 0;
    const SamplingParams params;
    std::int32_t next = 0, length = 0, generated = 0, chosen = 0;
    CpuKernels().sample({logits.data(), type, 1, 1000, &sequence, &params, nullptr, 0, &next,
                         &length, &generated, &chosen},
                        nullptr);
    CHECK(chosen == 617);
  }
}

}  // namespace sluice::test
