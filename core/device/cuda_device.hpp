// An NVIDIA GPU: CUDA streams, pooled events, device memory under a limit, registered host memory.
#pragma once
#include <memory>
#include <optional>

#include "core/device/device.hpp"

namespace sluice {

struct CudaDeviceOptions {
  int ordinal = 0;
  // Bytes that weights, KV cache and workspace may take together; none: what is free now.
  std::optional<std::uint64_t> memory_limit{};
};

// Throws InputError when there is no such GPU or driver.
std::unique_ptr<IDevice> make_cuda_device(const CudaDeviceOptions& options = {});

}  // namespace sluice
