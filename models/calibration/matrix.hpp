// Matrices of f32 in host memory, and their products with all cores.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/ops/cpu_kernels.hpp"

namespace sluice {

struct Matrix {
  Matrix() = default;
  Matrix(std::uint64_t rows_of, std::uint64_t columns_of)
      : rows(rows_of), columns(columns_of), values(rows_of * columns_of) {}

  float* row(std::uint64_t i) { return values.data() + i * columns; }
  const float* row(std::uint64_t i) const { return values.data() + i * columns; }

  std::uint64_t rows = 0, columns = 0;
  std::vector<float> values;  // row by row
};

// to [a_rows, b_rows] = A B^T, of A [a_rows, k] and B [b_rows, k]. The bits depend on the processor's
// instruction set, not on threads.
inline void multiply(const float* a, std::uint64_t a_rows, const float* b, std::uint64_t b_rows,
                     std::uint64_t k, float* to) {
  cpu::linear({.x = a,
               .weight = reinterpret_cast<const std::byte*>(b),
               .weight_type = DType::f32,
               .out = to,
               .type = DType::f32,
               .rows = static_cast<std::uint32_t>(a_rows),
               .n = static_cast<std::uint32_t>(b_rows),
               .k = static_cast<std::uint32_t>(k)});
}

}  // namespace sluice
