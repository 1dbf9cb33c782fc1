// Dequantising on a GPU.
#pragma once
#include "core/weights/dequantise.hpp"

namespace sluice {

// Launches one kernel on the cudaStream_t for all parts.
void cuda_dequantise(const DequantiseArgs& args, NativeStream stream);

}  // namespace sluice
