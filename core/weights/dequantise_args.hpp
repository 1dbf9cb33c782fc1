// What dequantising is asked to do: plain values, which an operation's body and a kernel can hold.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"
#include "sluice/unit.hpp"

namespace sluice {

// One matrix, or everything that lies behind the matrices and is stored alike in all encodings.
struct DequantisePart {
  Encoding encoding = Encoding::native;  // native: copied as it is
  DType type = DType::bf16;              // of the values written
  const std::byte* from = nullptr;       // [rows, code_row_bytes()], or bytes
  const std::byte* scales = nullptr;     // [rows, scale_row_bytes()]
  std::byte* to = nullptr;               // [rows, k] of `type`, without gaps
  std::uint64_t rows = 0, k = 0;         // of what is copied: 1 row of k bytes
};

struct DequantiseArgs {
  std::array<DequantisePart, 4> parts;
  std::uint32_t count = 0;
};

}  // namespace sluice
