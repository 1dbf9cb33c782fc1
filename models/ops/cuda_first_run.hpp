// Runs each kernel that a decoder will use once, on zeros: a kernel's code is loaded when it first
// runs, behind whatever copies are under way then.
#pragma once
#include <cuda_runtime.h>

#include "core/device/device.hpp"
#include "models/ops/kernels.hpp"

namespace sluice {

// Takes a little memory of `device` for the time; waits for `stream`.
void cuda_first_run(IDevice& device, const IKernels& kernels, const KernelShapes& shapes,
                    cudaStream_t stream);

}  // namespace sluice
