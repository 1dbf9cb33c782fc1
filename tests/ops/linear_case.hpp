// One product as the batteries of linear() ask for it, and what they compare it with.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/ops/bed.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {

struct Linear {
  DType type, weight_type;
  std::uint32_t rows, n, k;
  bool bias, residual;
  Encoding encoding = Encoding::native;

  Tensor x{}, bias_values{}, residual_values{};
  Tensor weight{};          // native
  Bytes codes{}, scales{};  // else

  // Random values; codes and scales, too, with every code that the encoding has.
  void fill(Seeded& random);
  double weight_at(std::size_t row, std::size_t i) const;
  // With outputs [first, n) alone: the same weights, from another place.
  Linear from_output(std::uint32_t first) const;

  // Rows [first, first + count) as the kernel computes them.
  Tensor run(std::uint32_t first, std::uint32_t count);
  // Of the product of `count` rows; see product_family() of bed.hpp.
  int family(std::uint32_t count) const;
  bool dequantises() const;  // see bed.hpp

 private:
  LinearArgs args(std::uint32_t count) const;
};

std::string describe(const Linear& c);

// How many results differ from a sum in double precision by more than an f32 sum in any order and
// one rounding (with a residual two) may.
std::size_t wrong_results(Linear& c);

// Checks that a row's bits are the same in every batch of one family.
void check_batches(Linear& c);
// Checks that an output's value is the same without those before it.
void check_outputs(Linear& c);

}  // namespace sluice::test
