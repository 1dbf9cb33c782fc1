// Perplexity and divergence against probabilities worked out by hand, and against a plain loop in long
// double.
#include "harness/quality.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/weights/convert.hpp"
#include "tests/catch.hpp"

namespace sluice {
namespace {

using Rows = std::vector<std::vector<float>>;

// Rows as `type`, and what is left of their values in it.
struct Stored {
  Stored(const Rows& rows, DType of) : type(of), vocab(rows.front().size()) {
    for (const auto& row : rows) {
      std::vector<std::byte> some(vocab * size_of(type));
      convert(DType::f32, reinterpret_cast<const std::byte*>(row.data()), type, some.data(), vocab);
      values.emplace_back(vocab);
      convert(type, some.data(), DType::f32, reinterpret_cast<std::byte*>(values.back().data()),
              vocab);
      bytes.insert(bytes.end(), some.begin(), some.end());
    }
  }
  Logits logits() const { return {bytes, type, static_cast<std::uint32_t>(vocab)}; }

  DType type;
  std::size_t vocab;
  std::vector<std::byte> bytes;
  Rows values;
};

Rows made_up(std::size_t rows, std::size_t vocab, std::uint64_t seed, float spread) {
  Rows out(rows, std::vector<float>(vocab));
  std::uint64_t state = seed;
  for (auto& row : out)
    for (float& value : row) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = (static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5f) * spread;
    }
  return out;
}

std::vector<long double> probabilities(const std::vector<float>& row) {
  long double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<long double>(x));
  std::vector<long double> out;
  for (const float x : row) out.push_back(std::exp(static_cast<long double>(x)) / sum);
  return out;
}

std::size_t most_likely(const std::vector<float>& row) {
  std::size_t best = 0;
  for (std::size_t id = 1; id < row.size(); ++id)
    if (row[id] > row[best]) best = id;
  return best;
}

}  // namespace

TEST_CASE("perplexity of probabilities worked out by hand") {
  // 0.1 0.2 0.3 0.4, moved up by 100; and four that are equal.
  const Stored rows(
      {{100 + std::log(1.0f), 100 + std::log(2.0f), 100 + std::log(3.0f), 100 + std::log(4.0f)},
       {-3, -3, -3, -3}},
      DType::f32);
  Quality quality;
  add_quality(quality, rows.logits(), std::vector<std::int32_t>{3, 0});
  CHECK(quality.tokens == 2);
  CHECK(quality.surprise == Approx(-std::log(0.4) - std::log(0.25)).epsilon(1e-6));
  CHECK(quality.perplexity() == Approx(1 / std::sqrt(0.4 * 0.25)).epsilon(1e-6));
  add_quality(quality, rows.logits(), std::vector<std::int32_t>{0, 1});
  CHECK(quality.perplexity() == Approx(std::pow(0.4 * 0.25 * 0.1 * 0.25, -0.25)).epsilon(1e-6));
}

TEST_CASE("divergence of probabilities worked out by hand") {
  const Stored reference({{0, 0, 0, 0}, {std::log(2.0f), 0, 0, 0}, {1, 5, 5, 0}}, DType::f32);
  const Stored tested({{0, 0, std::log(3.0f), 0}, {std::log(2.0f), 0, 0, 0}, {1, 5, 5.5f, 0}},
                      DType::f32);
  Divergence one;
  add_divergence(one, reference.logits(), tested.logits());
  // 1/4 each against 1/6 1/6 1/2 1/6; the first of equal ones is not the third.
  const double first = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  const auto p = probabilities({1, 5, 5, 0}), q = probabilities({1, 5, 5.5f, 0});
  double third = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    third += static_cast<double>(p[i] * std::log(p[i] / q[i]));
  CHECK(one.positions == 3);
  CHECK(one.agreed == 1);
  CHECK(one.agreement() == Approx(1.0 / 3));
  CHECK(one.kl == Approx(first + third).epsilon(1e-6));
  CHECK(one.mean_kl() == Approx((first + third) / 3).epsilon(1e-6));
  CHECK(one.largest_kl == Approx(std::max(first, third)).epsilon(1e-6));

  Divergence other;  // it is not the same the other way round
  add_divergence(other, tested.logits(), reference.logits());
  CHECK(std::abs(other.kl - one.kl) > 1e-3);
}

TEST_CASE("of equally likely tokens the lowest id counts") {
  const Stored equal({{7, 7, 7}, {0, 7, 7}}, DType::bf16),
      first({{7, 1, 1}, {1, 7, 1}}, DType::bf16);
  Divergence divergence;
  add_divergence(divergence, equal.logits(), first.logits());
  CHECK(divergence.agreed == 2);
}

TEST_CASE("figures are those of a plain loop, in every type of logits") {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Stored reference(made_up(50, 1000, 1, 30), type);
    Rows moved = made_up(50, 1000, 2, 1);
    for (std::size_t row = 0; row < moved.size(); ++row)
      for (std::size_t id = 0; id < 1000; ++id) moved[row][id] += reference.values[row][id];
    const Stored tested(moved, type);
    std::vector<std::int32_t> next;
    long double surprise = 0, kl = 0, largest = 0;
    std::uint64_t agreed = 0;
    for (std::size_t row = 0; row < moved.size(); ++row) {
      next.push_back(static_cast<std::int32_t>((row * 37) % 1000));
      const auto p = probabilities(reference.values[row]), q = probabilities(tested.values[row]);
      surprise -= std::log(q[static_cast<std::size_t>(next.back())]);
      long double of_row = 0;
      for (std::size_t id = 0; id < 1000; ++id) of_row += p[id] * std::log(p[id] / q[id]);
      kl += of_row;
      largest = std::max(largest, of_row);
      agreed += most_likely(reference.values[row]) == most_likely(tested.values[row]);
    }
    Quality quality;
    add_quality(quality, tested.logits(), next);
    Divergence divergence;
    add_divergence(divergence, reference.logits(), tested.logits());
    CAPTURE(name_of(type));
    CHECK(quality.surprise == Approx(static_cast<double>(surprise)).epsilon(1e-12));
    CHECK(divergence.kl == Approx(static_cast<double>(kl)).epsilon(1e-10));
    CHECK(divergence.largest_kl == Approx(static_cast<double>(largest)).epsilon(1e-10));
    CHECK(divergence.agreed == agreed);
    CHECK(agreed > 0);
    CHECK(agreed < moved.size());

    Divergence none;
    add_divergence(none, tested.logits(), tested.logits());
    CHECK(none.kl == 0);
    CHECK(none.agreed == moved.size());
  }
}

TEST_CASE("logits that are not finite are refused") {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    const Stored good({{1, 2, 3}}, DType::f32), broken({{1, bad, 3}}, DType::f32);
    Quality quality;
    CHECK_THROWS_AS(add_quality(quality, broken.logits(), std::vector<std::int32_t>{0}), Error);
    Divergence divergence;
    CHECK_THROWS_AS(add_divergence(divergence, broken.logits(), good.logits()), Error);
    CHECK_THROWS_AS(add_divergence(divergence, good.logits(), broken.logits()), Error);
  }
}

TEST_CASE("rows of different lengths are not compared") {
  const Stored three({{1, 2, 3}}, DType::f32), four({{1, 2, 3, 4}}, DType::f32);
  const Stored two_rows({{1, 2, 3}, {1, 2, 3}}, DType::f32);
  Divergence divergence;
  CHECK_THROWS_AS(add_divergence(divergence, three.logits(), four.logits()), Error);
  CHECK_THROWS_AS(add_divergence(divergence, two_rows.logits(), three.logits()), Error);
}

}  // namespace sluice
