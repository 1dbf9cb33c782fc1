// Dequantising on a GPU.
#pragma once
#include "core/device/op.hpp"
#include "core/weights/dequantise_args.hpp"

namespace sluice {

// Launches one kernel on the cudaStream_t for all parts.
void cuda_dequantise(const DequantiseArgs& args, NativeStream stream);

}  // namespace sluice
