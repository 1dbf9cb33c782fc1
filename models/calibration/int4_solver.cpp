#include "models/calibration/int4_solver.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/float16.hpp"
#include "core/parallel.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {
namespace {

// Of the mean second moment: what the calibration's text says about an input is not all there is.
constexpr double kDamping = 0.05;
// Widths of a group's range that are tried, of the full one.
constexpr float kWidest = 1.0f, kNarrowest = 0.65f, kWidthStep = 0.05f;
constexpr std::array<float, 3> kZeroSteps{-1, 0, 1};
constexpr int kSweeps = 2;
// A scale moves by at most this much of itself: beyond, the codes are no longer those of the scale.
constexpr float kMostOfScale = 0.3f;
constexpr float kLargestF16 = 65504;
constexpr float kMostCode = static_cast<float>(kInt4Most);

float to_code(float value, float zero) {
  return std::clamp(std::nearbyint(value) + zero, 0.0f, kMostCode);
}

// Of one group, as numbers.
struct Grid {
  float scale = 1, zero = 0;

  float code(float value) const { return to_code(value / scale, zero); }
  float value(float code) const { return scale * (code - zero); }
};

// Columns [first, first + n) are a group, or a part of the factor.
struct Columns {
  std::uint64_t first = 0, n = 0;
};
Columns columns_of(std::uint64_t part, std::uint64_t k) {
  const std::uint64_t first = part * kGroupWeights;
  return {first, std::min(kGroupWeights, k - first)};
}
std::uint64_t parts_of(std::uint64_t k) { return (k + kGroupWeights - 1) / kGroupWeights; }

float rounded(float scale) { return f16_to_f32(f32_to_f16(scale)); }

// False where a weight is not finite, or no f16 scale covers the range.
bool pick_grid(const float* weights, const float* moments, std::uint64_t k, std::uint64_t stride,
               Grid& best) {
  if (!std::all_of(weights, weights + k, [](float weight) { return std::isfinite(weight); }))
    return false;
  const auto [least, most] = std::minmax_element(weights, weights + k);
  const float low = std::min(*least, 0.0f), high = std::max(*most, 0.0f);
  if (high - low > kLargestF16 * kMostCode) return false;
  double least_error = std::numeric_limits<double>::infinity();
  for (float width = kWidest; width > kNarrowest - kWidthStep / 2; width -= kWidthStep) {
    Grid grid;
    if (const float scale = rounded((high - low) * width / kMostCode); scale > 0)
      grid.scale = scale;
    const float middle = std::clamp(std::nearbyint(-low * width / grid.scale), 0.0f, kMostCode);
    for (const float step : kZeroSteps) {
      grid.zero = std::clamp(middle + step, 0.0f, kMostCode);
      double error = 0;
      for (std::uint64_t i = 0; i < k; ++i) {
        const float off = grid.value(grid.code(weights[i])) - weights[i];
        error += static_cast<double>(moments[i * stride]) * off * off;
      }
      if (error < least_error) {
        least_error = error;
        best = grid;
      }
    }
  }
  return true;
}

// What becomes of the rows of one matrix.
struct State {
  State(std::uint64_t n, std::uint64_t k) : codes(n, k), error(n, k), grids(n * parts_of(k)) {}

  Grid& grid(std::uint64_t row, std::uint64_t group) {
    return grids[row * parts_of(codes.columns) + group];
  }

  Matrix codes;             // whole numbers
  Matrix error;             // of the quantised weights; 0 where there is no code yet
  std::vector<Grid> grids;  // [n, groups]
};

// A group's gradient of a row's error, [columns], for the errors of the whole row; `block` is the
// moments of the group's columns among themselves, [columns, kGroupWeights].
void refit_scale(Grid& grid, const Columns& group, const float* block, const float* codes,
                 float* errors, float* gradient) {
  std::array<float, kGroupWeights> steps, products{};
  for (std::uint64_t i = 0; i < group.n; ++i) steps[i] = codes[i] - grid.zero;
  for (std::uint64_t i = 0; i < group.n; ++i)
    for (std::uint64_t j = 0; j < group.n; ++j)
      products[j] += steps[i] * block[i * kGroupWeights + j];
  double slope = 0, bend = 0;
  for (std::uint64_t i = 0; i < group.n; ++i) {
    slope += static_cast<double>(steps[i]) * gradient[i];
    bend += static_cast<double>(steps[i]) * products[i];
  }
  if (!(bend > 0)) return;
  const float scale = rounded(static_cast<float>(grid.scale - slope / bend));
  const float change = scale - grid.scale;
  if (!(scale > 0) || !(std::abs(change) < kMostOfScale * grid.scale)) return;
  grid.scale = scale;
  for (std::uint64_t i = 0; i < group.n; ++i) {
    errors[i] += change * steps[i];
    gradient[i] += change * products[i];
  }
}

// Each code of the group in turn becomes the best one.
void descend(const Grid& grid, const Columns& group, const float* block, float* codes,
             float* errors, float* gradient) {
  for (std::uint64_t i = 0; i < group.n; ++i) {
    const float* moments = block + i * kGroupWeights;
    const float now = grid.value(codes[i]);
    const float code = grid.code(now - gradient[i] / moments[i]);
    if (code == codes[i]) continue;
    const float change = grid.value(code) - now;
    codes[i] = code;
    errors[i] += change;
    for (std::uint64_t j = 0; j < group.n; ++j) gradient[j] += change * moments[j];
  }
}

bool pick_grids(const Matrix& weights, const Matrix& moments, State& state) {
  const std::uint64_t k = weights.columns;
  std::atomic<bool> all = true;
  parallel_for(weights.rows, [&](std::size_t row) {
    for (std::uint64_t part = 0; part < parts_of(k); ++part) {
      const Columns group = columns_of(part, k);
      if (!pick_grid(weights.row(row) + group.first, moments.row(group.first) + group.first,
                     group.n, k + 1, state.grid(row, part)))
        all = false;
    }
  });
  return all;
}

// The error of a part's columns makes up for that of the columns behind it, which have their codes.
void nearest_plane(const Matrix& weights, const Matrix& factor,
                   const std::vector<std::uint32_t>& order, State& state) {
  const std::uint64_t n = weights.rows, k = weights.columns;
  Matrix error(n, k);  // in the factor's order
  std::vector<float> behind(n * kGroupWeights);
  for (std::uint64_t part = parts_of(k); part-- > 0;) {
    const Columns columns = columns_of(part, k);
    multiply(error.row(0), n, factor.row(columns.first), columns.n, k, behind.data());
    parallel_for(n, [&](std::size_t row) {
      float* const errors = error.row(row);
      for (std::uint64_t j = columns.first + columns.n; j-- > columns.first;) {
        const float* const along = factor.row(j);
        float sum = behind[row * columns.n + j - columns.first];
        for (std::uint64_t i = j + 1; i < columns.first + columns.n; ++i)
          sum += along[i] * errors[i];
        const std::uint32_t column = order[j];
        const Grid& grid = state.grid(row, column / kGroupWeights);
        const float weight = weights.row(row)[column];
        const float code = grid.code(weight - sum / along[j]);
        state.codes.row(row)[column] = code;
        errors[j] = state.error.row(row)[column] = grid.value(code) - weight;
      }
    });
  }
}

void sweep(const Matrix& moments, State& state) {
  const std::uint64_t n = state.codes.rows, k = state.codes.columns;
  std::vector<float> gradient(n * kGroupWeights), block(kGroupWeights * kGroupWeights);
  for (std::uint64_t part = 0; part < parts_of(k); ++part) {
    const Columns group = columns_of(part, k);
    multiply(state.error.row(0), n, moments.row(group.first), group.n, k, gradient.data());
    for (std::uint64_t i = 0; i < group.n; ++i)
      std::copy_n(moments.row(group.first + i) + group.first, group.n,
                  block.data() + i * kGroupWeights);
    parallel_for(n, [&](std::size_t row) {
      Grid& grid = state.grid(row, part);
      float* const codes = state.codes.row(row) + group.first;
      float* const errors = state.error.row(row) + group.first;
      float* const slope = gradient.data() + row * group.n;
      refit_scale(grid, group, block.data(), codes, errors, slope);
      descend(grid, group, block.data(), codes, errors, slope);
    });
  }
}

void store(State& state, std::byte* codes, std::byte* scales) {
  const std::uint64_t n = state.codes.rows, k = state.codes.columns;
  const std::uint64_t code_bytes = code_row_bytes(Encoding::int4, k);
  const std::uint64_t scale_bytes = scale_row_bytes(Encoding::int4, k);
  parallel_for(n, [&](std::size_t row) {
    const float* const from = state.codes.row(row);
    const std::vector<std::uint8_t> whole(from, from + k);
    pack_int4(whole, codes + row * code_bytes);
    auto* const to = reinterpret_cast<GroupScale*>(scales + row * scale_bytes);
    for (std::uint64_t part = 0; part < parts_of(k); ++part) {
      const Grid& grid = state.grid(row, part);
      to[part] = {f32_to_f16(grid.scale), f32_to_f16(grid.zero)};
    }
  });
}

}  // namespace

Int4Solver::Int4Solver(Matrix moments)
    : moments_(std::move(moments)),
      order_(moments_.rows),
      factor_(moments_.rows, moments_.columns) {
  const std::uint64_t k = moments_.rows;
  double mean = 0;
  for (std::uint64_t i = 0; i < k; ++i) mean += moments_.row(i)[i];
  mean /= static_cast<double>(k);
  if (!std::isfinite(mean) || mean < 0)
    throw InputError(
        "the second moments of a matrix's inputs have the mean {}: with this text the model gives "
        "numbers that are not finite",
        mean);
  // Inputs that are always zero say nothing: then each weight counts as much.
  const auto added = static_cast<float>(mean > 0 ? kDamping * mean : 1);
  for (std::uint64_t i = 0; i < k; ++i) moments_.row(i)[i] += added;

  std::iota(order_.begin(), order_.end(), 0u);
  std::ranges::stable_sort(order_, {},
                           [&](std::uint32_t column) { return moments_.row(column)[column]; });
  const auto size = static_cast<Eigen::Index>(k);
  Eigen::MatrixXd lower(size, size);
  for (std::uint64_t j = 0; j < k; ++j)
    for (std::uint64_t i = j; i < k; ++i)
      lower(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
          moments_.row(order_[i])[order_[j]];
  const Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>> factorised(lower);
  if (factorised.info() != Eigen::Success)
    throw Error("the second moments of {} inputs have no Cholesky factor", k);
  for (std::uint64_t j = 0; j < k; ++j)
    for (std::uint64_t i = j; i < k; ++i)
      factor_.row(j)[i] =
          static_cast<float>(lower(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)));
}

bool Int4Solver::solve(const Matrix& weights, std::byte* codes, std::byte* scales) const {
  State state(weights.rows, weights.columns);
  if (!pick_grids(weights, moments_, state)) return false;
  nearest_plane(weights, factor_, order_, state);
  for (int i = 0; i < kSweeps; ++i) sweep(moments_, state);
  store(state, codes, scales);
  return true;
}

Matrix Int4Solver::solved(const Matrix& right) const {
  constexpr std::uint64_t kRowsAtOnce = 64;
  const std::uint64_t n = right.rows, k = right.columns;
  const auto size = static_cast<Eigen::Index>(k);
  const Eigen::Map<const Eigen::MatrixXf> lower(factor_.row(0), size, size);  // by columns
  Matrix out(n, k);
  parallel_for((n + kRowsAtOnce - 1) / kRowsAtOnce, [&](std::size_t task) {
    const std::uint64_t first = task * kRowsAtOnce, rows = std::min(kRowsAtOnce, n - first);
    Eigen::MatrixXf some(size, static_cast<Eigen::Index>(rows));
    const auto move = [&](auto&& one) {
      for (std::uint64_t row = 0; row < rows; ++row)
        for (std::uint64_t j = 0; j < k; ++j)
          one(some(static_cast<Eigen::Index>(j), static_cast<Eigen::Index>(row)), first + row,
              order_[j]);
    };
    move([&](float& to, std::uint64_t row, std::uint64_t j) { to = right.row(row)[j]; });
    lower.triangularView<Eigen::Lower>().solveInPlace(some);
    lower.triangularView<Eigen::Lower>().transpose().solveInPlace(some);
    move([&](float from, std::uint64_t row, std::uint64_t j) { out.row(row)[j] = from; });
  });
  return out;
}

}  // namespace sluice
