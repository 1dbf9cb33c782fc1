// What is kept of all the inputs of a matrix while a text runs through the model.
#pragma once
#include <span>

#include "models/calibration/matrix.hpp"

namespace sluice {

// Sums over tokens, each of a weight w, for a matrix [n, k].
class Moments {
 public:
  // `x` [tokens, k] is what the matrix multiplies, and x + `missed` what it should. `behind`
  // [tokens, n] is what its products are to make up for besides; null: nothing.
  void add(const Matrix& x, const Matrix& missed, const Matrix* behind,
           std::span<const float> weights);

  // Sum of w x x^T, [k, k]: symmetric to the bit.
  const Matrix& inputs() const { return inputs_; }
  // Sum of w y x^T, [n, k], where y is what the products of `weights` with x lack: those with `missed`,
  // and `behind`.
  Matrix owed(const Matrix& weights) const;

 private:
  Matrix inputs_;
  Matrix missed_;  // of w x missed^T
  Matrix behind_;  // of w behind x^T, or nothing
};

}  // namespace sluice
