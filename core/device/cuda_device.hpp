// An NVIDIA GPU: CUDA streams, pooled events, device memory under a limit, registered host memory.
// A stream of the resource `host` runs its operations on a thread of the driver's.
#pragma once
#include <memory>
#include <optional>

#include "core/device/device.hpp"

namespace sluice {

struct CudaDeviceOptions {
  int ordinal = 0;
  // Bytes that the process may take of the GPU's memory: allocations here, and beside them the
  // context, kernels and libraries; none: what is free now.
  std::optional<std::uint64_t> memory_limit{};
};

// Throws InputError when there is no such GPU or driver.
std::unique_ptr<IDevice> make_cuda_device(const CudaDeviceOptions& options = {});

}  // namespace sluice
