#include "models/calibration/moments.hpp"

#include <cmath>

#include "core/parallel.hpp"

namespace sluice {
namespace {

// The transpose, each token times the root of its weight: so each factor of a product has one half of
// it, and the product of a matrix with itself is symmetric.
Matrix weighted(const Matrix& rows, std::span<const float> weights) {
  Matrix out(rows.columns, rows.rows);
  parallel_for(rows.columns, [&](std::size_t column) {
    float* const to = out.row(column);
    for (std::uint64_t t = 0; t < rows.rows; ++t)
      to[t] = std::sqrt(weights[t]) * rows.row(t)[column];
  });
  return out;
}

// Adds A B^T to `sum`, which may be nothing yet.
void add_product(const Matrix& a, const Matrix& b, Matrix& sum) {
  if (sum.rows == 0) sum = Matrix(a.rows, b.rows);
  Matrix product(a.rows, b.rows);
  multiply(a.row(0), a.rows, b.row(0), b.rows, a.columns, product.row(0));
  parallel_for(a.rows, [&](std::size_t row) {
    for (std::uint64_t i = 0; i < b.rows; ++i) sum.row(row)[i] += product.row(row)[i];
  });
}

}  // namespace

void Moments::add(const Matrix& x, const Matrix& missed, const Matrix* behind,
                  std::span<const float> weights) {
  const Matrix inputs = weighted(x, weights);
  add_product(inputs, inputs, inputs_);
  add_product(inputs, weighted(missed, weights), missed_);
  if (behind) add_product(weighted(*behind, weights), inputs, behind_);
}

Matrix Moments::owed(const Matrix& weights) const {
  Matrix out = behind_;
  add_product(weights, missed_, out);
  return out;
}

}  // namespace sluice
