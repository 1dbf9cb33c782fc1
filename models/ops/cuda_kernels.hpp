// The decoder's operations on an NVIDIA GPU. Matrices with up to 16 rows of activations go through
// one kernel family that reads weights at memory speed, longer ones through cuBLASLt.
#pragma once
#include <memory>

#include "models/ops/kernels.hpp"

namespace sluice {

// Takes its workspace from `device`, which must be a CUDA device and outlive it.
std::unique_ptr<IKernels> make_cuda_kernels(IDevice& device);

}  // namespace sluice
