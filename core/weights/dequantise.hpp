// A unit's slab from the encoding in which it crossed the link to the native one that kernels read.
#pragma once
#include <array>

#include "core/device/device.hpp"
#include "core/weights/slab_layout.hpp"

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

// Plain values, so that an operation's body can hold them.
struct DequantiseArgs {
  std::array<DequantisePart, 4> parts;
  std::uint32_t count = 0;
};

// `from` is the unit's slab in `encoding`, `to` becomes its native one. They do not overlap.
DequantiseArgs dequantise_args(const ModelLayout& layout, UnitId unit, Encoding encoding,
                               const std::byte* from, std::byte* to);

// Puts it on the stream: on the CPU with all cores, on CUDA as one kernel.
void enqueue_dequantise(IDevice& device, StreamId stream, const ModelLayout& layout, UnitId unit,
                        Encoding encoding, const std::byte* from, std::byte* to);

}  // namespace sluice
