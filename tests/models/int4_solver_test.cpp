// The solver against the method as it is published, in double: an inverse's Cholesky factor with an
// update of all remaining weights, then the best of 16 codes by trying all of them.
#include "models/calibration/int4_solver.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/error.hpp"
#include "core/float16.hpp"
#include "core/weights/encoding.hpp"
#include "models/calibration/moments.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

using Rows = std::vector<std::vector<double>>;

// tokens x columns, of a few directions and some noise; one column is far larger than the others.
Matrix inputs_of(std::uint64_t tokens, std::uint64_t columns, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Matrix directions(5, columns), out(tokens, columns);
  for (float& x : directions.values) x = normal(random);
  for (std::uint64_t t = 0; t < tokens; ++t) {
    for (std::uint64_t d = 0; d < directions.rows; ++d) {
      const float along = normal(random);
      for (std::uint64_t i = 0; i < columns; ++i) out.row(t)[i] += along * directions.row(d)[i];
    }
    for (std::uint64_t i = 0; i < columns; ++i) out.row(t)[i] += 0.5f * normal(random);
    out.row(t)[columns / 3] *= 12;
  }
  return out;
}

Matrix moments_of(const Matrix& inputs) {
  Matrix out(inputs.columns, inputs.columns);
  for (std::uint64_t i = 0; i < out.rows; ++i)
    for (std::uint64_t j = 0; j < out.rows; ++j) {
      double sum = 0;
      for (std::uint64_t t = 0; t < inputs.rows; ++t)
        sum += static_cast<double>(inputs.row(t)[i]) * inputs.row(t)[j];
      out.row(i)[j] = static_cast<float>(sum);
    }
  return out;
}

Rows damped(const Matrix& moments) {
  Rows out(moments.rows, std::vector<double>(moments.rows));
  double trace = 0;
  for (std::uint64_t i = 0; i < moments.rows; ++i) trace += moments.row(i)[i];
  for (std::uint64_t i = 0; i < moments.rows; ++i)
    for (std::uint64_t j = 0; j < moments.rows; ++j)
      out[i][j] =
          moments.row(i)[j] + (i == j ? 0.05 * trace / static_cast<double>(moments.rows) : 0.0);
  return out;
}

Rows inverse(Rows a) {
  const std::size_t n = a.size();
  Rows out(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) out[i][i] = 1;
  for (std::size_t i = 0; i < n; ++i) {  // positive definite: the pivots are there
    const double pivot = a[i][i];
    for (std::size_t j = 0; j < n; ++j) {
      a[i][j] /= pivot;
      out[i][j] /= pivot;
    }
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r][i];
      for (std::size_t j = 0; j < n; ++j) {
        a[r][j] -= factor * a[i][j];
        out[r][j] -= factor * out[i][j];
      }
    }
  }
  return out;
}

struct Solved {
  std::vector<int> codes;
  std::vector<double> scales, zeros;  // by group

  double value(std::size_t i) const {
    const std::size_t group = i / kGroupWeights;
    return scales[group] * (codes[i] - zeros[group]);
  }
};

double as_f16(double x) { return f16_to_f32(f32_to_f16(static_cast<float>(x))); }
double code_of(double weight, double scale, double zero) {
  return std::clamp(std::nearbyint(weight / scale) + zero, 0.0, 15.0);
}

double error_of(const float* weights, const Solved& solved, const Rows& h) {
  const std::size_t k = h.size();
  double sum = 0;
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = 0; j < k; ++j)
      sum += (solved.value(i) - weights[i]) * h[i][j] * (solved.value(j) - weights[j]);
  return sum;
}

void pick_scales(const float* weights, const Rows& h, Solved& out) {
  const std::size_t k = h.size();
  for (std::size_t first = 0; first < k; first += kGroupWeights) {
    const std::size_t last = std::min<std::size_t>(first + kGroupWeights, k);
    const double low = std::min(0.0f, *std::min_element(weights + first, weights + last));
    const double high = std::max(0.0f, *std::max_element(weights + first, weights + last));
    double least = std::numeric_limits<double>::infinity(), best_scale = 1, best_zero = 0;
    for (int percent = 100; percent >= 65; percent -= 5) {
      const double scale = as_f16((high - low) * percent / 100 / 15);
      for (const int step : {-1, 0, 1}) {
        const double middle = std::clamp(std::nearbyint(-low * percent / 100 / scale), 0.0, 15.0);
        const double zero = std::clamp(middle + step, 0.0, 15.0);
        double error = 0;
        for (std::size_t i = first; i < last; ++i) {
          const double off = scale * (code_of(weights[i], scale, zero) - zero) - weights[i];
          error += h[i][i] * off * off;
        }
        if (error < least) {
          least = error;
          best_scale = scale;
          best_zero = zero;
        }
      }
    }
    out.scales.push_back(best_scale);
    out.zeros.push_back(best_zero);
  }
}

// As published: columns by descending moments; each error is spread over the columns that remain by the
// inverse of their moments.
void gptq(const float* weights, const Rows& h, Solved& out) {
  const std::size_t k = h.size();
  std::vector<std::size_t> order(k);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return h[a][a] > h[b][b]; });
  std::vector<double> left(weights, weights + k);
  out.codes.assign(k, 0);
  for (std::size_t at = 0; at < k; ++at) {
    Rows remaining;
    for (std::size_t i = at; i < k; ++i) {
      remaining.emplace_back();
      for (std::size_t j = at; j < k; ++j) remaining.back().push_back(h[order[i]][order[j]]);
    }
    const Rows of_remaining = inverse(remaining);
    const std::size_t column = order[at], group = column / kGroupWeights;
    out.codes[column] =
        static_cast<int>(code_of(left[column], out.scales[group], out.zeros[group]));
    const double error = (left[column] - out.value(column)) / of_remaining[0][0];
    for (std::size_t i = at + 1; i < k; ++i) left[order[i]] -= error * of_remaining[i - at][0];
  }
}

void sweep(const float* weights, const Rows& h, Solved& out) {
  const std::size_t k = h.size();
  const auto gradient = [&](std::size_t i) {
    double sum = 0;
    for (std::size_t j = 0; j < k; ++j) sum += h[i][j] * (out.value(j) - weights[j]);
    return sum;
  };
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    const std::size_t first = group * kGroupWeights;
    const std::size_t last = std::min<std::size_t>(first + kGroupWeights, k);
    double slope = 0, bend = 0;
    for (std::size_t i = first; i < last; ++i) {
      const double step = out.codes[i] - out.zeros[group];
      slope += step * gradient(i);
      for (std::size_t j = first; j < last; ++j)
        bend += step * h[i][j] * (out.codes[j] - out.zeros[group]);
    }
    out.scales[group] = as_f16(out.scales[group] - slope / bend);
    for (std::size_t i = first; i < last; ++i) {
      const double slope_of_one = gradient(i), now = out.value(i);
      double best = 0;
      const int before = out.codes[i];
      for (int code = 0; code < 16; ++code) {
        const double change = out.scales[group] * (code - out.zeros[group]) - now;
        const double gained = 2 * change * slope_of_one + change * change * h[i][i];
        if (gained < best) {
          best = gained;
          out.codes[i] = code;
        }
      }
      if (best == 0) out.codes[i] = before;
    }
  }
}

struct Case {
  explicit Case(std::uint32_t seed, std::uint64_t n, std::uint64_t k) : weights(n, k) {
    std::mt19937 random(seed);
    moments = moments_of(inputs_of(2 * k, k, random));
    std::normal_distribution<float> normal(0.002f, 0.02f);
    for (float& x : weights.values) x = normal(random);
  }
  Matrix weights, moments;
};

std::vector<Solved> unpacked(const std::vector<std::byte>& codes,
                             const std::vector<std::byte>& scales, std::uint64_t n,
                             std::uint64_t k) {
  std::vector<Solved> out(n);
  for (std::uint64_t row = 0; row < n; ++row) {
    const std::byte* from = codes.data() + row * code_row_bytes(Encoding::int4, k);
    const auto* groups = reinterpret_cast<const GroupScale*>(
        scales.data() + row * scale_row_bytes(Encoding::int4, k));
    for (std::uint64_t i = 0; i < k; ++i) {
      std::uint32_t word;
      std::memcpy(&word, from + i / 8 * 4, sizeof(word));
      out[row].codes.push_back(
          static_cast<int>(code_in_word(word, static_cast<std::uint32_t>(i % 8))));
      if (i % kGroupWeights != 0) continue;
      out[row].scales.push_back(f16_to_f32(groups[i / kGroupWeights].scale));
      out[row].zeros.push_back(f16_to_f32(groups[i / kGroupWeights].zero));
    }
  }
  return out;
}

std::vector<Solved> solved(const Case& one) {
  const std::uint64_t n = one.weights.rows, k = one.weights.columns;
  std::vector<std::byte> codes(n * code_row_bytes(Encoding::int4, k), std::byte{0xEE});
  std::vector<std::byte> scales(n * scale_row_bytes(Encoding::int4, k), std::byte{0xEE});
  REQUIRE(Int4Solver(one.moments).solve(one.weights, codes.data(), scales.data()));
  return unpacked(codes, scales, n, k);
}

TEST_CASE("codes and scales are those of the published method in double, then of trying all codes",
          "[solver]") {
  for (const std::uint64_t k : {8u, 42u, 128u, 150u}) {
    const Case one(static_cast<std::uint32_t>(k), 5, k);
    const Rows h = damped(one.moments);
    const std::vector<Solved> got = solved(one);
    for (std::uint64_t row = 0; row < one.weights.rows; ++row) {
      INFO("k " << k << ", row " << row);
      Solved expected;
      pick_scales(one.weights.row(row), h, expected);
      gptq(one.weights.row(row), h, expected);
      for (int i = 0; i < 2; ++i) sweep(one.weights.row(row), h, expected);
      CHECK(got[row].codes == expected.codes);
      CHECK(got[row].scales == expected.scales);
      CHECK(got[row].zeros == expected.zeros);
    }
  }
}

TEST_CASE("products change far less than with weights rounded to nearest", "[solver]") {
  for (const std::uint64_t k : {100u, 256u, 300u}) {
    const Case one(static_cast<std::uint32_t>(k) + 1, 16, k);
    const Rows h = damped(one.moments);
    const std::uint64_t n = one.weights.rows;
    std::vector<std::byte> codes(n * code_row_bytes(Encoding::int4, k));
    std::vector<std::byte> scales(n * scale_row_bytes(Encoding::int4, k));
    REQUIRE(quantise_rows(Encoding::int4, one.weights.row(0), n, k, codes.data(), scales.data()));
    const std::vector<Solved> nearest = unpacked(codes, scales, n, k), got = solved(one);
    for (std::uint64_t row = 0; row < n; ++row)
      CHECK(error_of(one.weights.row(row), got[row], h) <
            0.7 * error_of(one.weights.row(row), nearest[row], h));
  }
}

TEST_CASE("inputs that are always zero leave a matrix rounded by itself", "[solver]") {
  Case one(3, 4, 130);
  std::ranges::fill(one.moments.values, 0.0f);
  for (const Solved& row : solved(one)) CHECK(std::ranges::count(row.codes, row.codes[0]) < 130);
}

TEST_CASE("weights that int4 cannot store are refused", "[solver]") {
  Case one(4, 4, 130);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -2e6f}) {
    for (const std::uint64_t at : {5, 129}) {
      std::ranges::fill(one.weights.values, 0.01f);
      one.weights.row(2)[at] = bad;
      std::vector<std::byte> codes(4 * code_row_bytes(Encoding::int4, 130));
      std::vector<std::byte> scales(4 * scale_row_bytes(Encoding::int4, 130));
      CHECK_FALSE(Int4Solver(one.moments).solve(one.weights, codes.data(), scales.data()));
    }
  }
}

TEST_CASE("inputs that are not finite are refused", "[solver]") {
  Case one(7, 4, 20);
  one.moments.row(3)[3] = std::nanf("");
  CHECK_THROWS_AS(Int4Solver(one.moments), InputError);
}

TEST_CASE("what weights must change by solves the moments' equation", "[solver]") {
  const Case one(5, 70, 150);
  const Rows h = damped(one.moments);
  const Matrix change = Int4Solver(one.moments).solved(one.weights);
  for (std::uint64_t row = 0; row < one.weights.rows; ++row)
    for (std::uint64_t j = 0; j < one.weights.columns; ++j) {
      double sum = 0;
      for (std::uint64_t i = 0; i < one.weights.columns; ++i)
        sum += static_cast<double>(change.row(row)[i]) * h[i][j];
      REQUIRE(std::abs(sum - one.weights.row(row)[j]) < 1e-4);
    }
}

TEST_CASE("moments are the sums over tokens", "[solver]") {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> uniform(0.1f, 3);
  const Matrix matrix = inputs_of(7, 33, random);
  Moments moments, without;
  Rows inputs(33, std::vector<double>(33)), owed(7, std::vector<double>(33)), missing = owed;
  for (const std::uint64_t tokens : {1u, 40u, 3u}) {
    const Matrix x = inputs_of(tokens, 33, random), missed = inputs_of(tokens, 33, random);
    const Matrix behind = inputs_of(tokens, 7, random);
    std::vector<float> weights(tokens);
    for (float& weight : weights) weight = uniform(random);
    moments.add(x, missed, &behind, weights);
    without.add(x, missed, nullptr, weights);
    for (std::uint64_t t = 0; t < tokens; ++t)
      for (std::uint64_t j = 0; j < 33; ++j) {
        const double right = static_cast<double>(weights[t]) * x.row(t)[j];
        for (std::uint64_t i = 0; i < 33; ++i) inputs[i][j] += right * x.row(t)[i];
        for (std::uint64_t i = 0; i < 7; ++i) {
          double lacking = 0;
          for (std::uint64_t l = 0; l < 33; ++l)
            lacking += static_cast<double>(matrix.row(i)[l]) * missed.row(t)[l];
          missing[i][j] += right * lacking;
          owed[i][j] += right * (lacking + behind.row(t)[i]);
        }
      }
  }
  const auto compare = [](const Matrix& got, const Rows& expected) {
    for (std::uint64_t i = 0; i < got.rows; ++i)
      for (std::uint64_t j = 0; j < got.columns; ++j)
        CHECK(std::abs(got.row(i)[j] - expected[i][j]) < 1e-4 * (1 + std::abs(expected[i][j])));
  };
  compare(moments.inputs(), inputs);
  compare(moments.owed(matrix), owed);
  compare(without.owed(matrix), missing);
  for (std::uint64_t i = 0; i < 33; ++i)
    for (std::uint64_t j = 0; j < i; ++j)
      REQUIRE(moments.inputs().row(i)[j] == moments.inputs().row(j)[i]);
}

}  // namespace
}  // namespace sluice::test
