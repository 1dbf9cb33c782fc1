// What is kept of all the inputs of a matrix while a text runs through the model.
#pragma once
#include <span>

#include "models/calibration/matrix.hpp"

namespace sluice {

// Sums over tokens t of weight w_t, for a matrix [n, k].
class Moments {
 public:
  Moments(std::uint64_t n, std::uint64_t k) : inputs_(k, k), owed_(n, k) {}

  // `x` [tokens, k] is what the matrix multiplies and `y` [tokens, n] what its products lack.
  void add(const Matrix& x, const Matrix& y, std::span<const float> weights);

  // Sum of w x x^T, [k, k]: symmetric to the bit.
  const Matrix& inputs() const { return inputs_; }
  // Sum of w y x^T, [n, k].
  const Matrix& owed() const { return owed_; }

 private:
  Matrix inputs_, owed_;
};

}  // namespace sluice
