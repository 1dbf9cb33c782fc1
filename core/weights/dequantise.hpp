// A unit's slab from the encoding in which it crossed the link to the native one that kernels read.
#pragma once
#include "core/device/device.hpp"
#include "core/weights/dequantise_args.hpp"
#include "core/weights/slab_layout.hpp"

namespace sluice {

// `from` is the unit's slab in `encoding`, `to` becomes its native one. They do not overlap.
DequantiseArgs dequantise_args(const ModelLayout& layout, UnitId unit, Encoding encoding,
                               const std::byte* from, std::byte* to);

// Puts it on the stream: on the CPU with all cores, on CUDA as one kernel.
void enqueue_dequantise(IDevice& device, StreamId stream, const ModelLayout& layout, UnitId unit,
                        Encoding encoding, const std::byte* from, std::byte* to);

}  // namespace sluice
