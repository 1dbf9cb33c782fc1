// int4 codes and scales that change a matrix's products least. For inputs x with second moments
// H = sum of x x^T, the squared error of Q x against W x over all of them is tr((Q - W) H (Q - W)^T):
// it depends on the weights' errors together, so that one weight's rounding can make up for another's.
//
// Each row of W by itself:
// 1. The scale and zero point of each group, with the least error when weights are rounded to nearest and
//    each counts by its input's second moment: the range's full width and down to 65 % of it.
// 2. Babai's nearest plane: with H = L L^T, from the last column to the first, each weight is rounded
//    after it has taken over what the errors so far can be made up for. Columns with large moments come
//    last in L's order, and so first. The codes are those of GPTQ (Frantar et al. 2023) with its groups
//    fixed before, from one factorisation instead of an inverse.
// 3. Sweeps over the groups: the scale becomes that of least error for the codes, then each code the best
//    one while all others stay. Neither step can make the error larger.
#pragma once
#include <cstddef>

#include "models/calibration/matrix.hpp"

namespace sluice {

class Int4Solver {
 public:
  // `moments` [k, k] is symmetric; 5 % of the mean of its diagonal is added to that. Throws InputError
  // where it is not finite.
  explicit Int4Solver(Matrix moments);

  // `right` H^-1, [n, k], with the damped moments: what `weights` must change by for products that lack
  // y to have it, as far as inputs can tell, where `right` is the sum of y x^T.
  Matrix solved(const Matrix& right) const;

  // Writes the codes and scales of `weights` [n, k], laid out as core/weights/encoding.hpp says. False
  // for weights that cannot be stored so, as quantise_rows() says.
  [[nodiscard]] bool solve(const Matrix& weights, std::byte* codes, std::byte* scales) const;

 private:
  Matrix moments_;                    // damped
  std::vector<std::uint32_t> order_;  // the column that is at each place of the factor
  Matrix factor_;                     // [k, k]: row j is column order_[j] of L, zeros before j
};

}  // namespace sluice
