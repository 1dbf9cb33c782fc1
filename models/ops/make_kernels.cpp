#include "core/error.hpp"
#include "models/ops/cpu_kernels.hpp"
#if SLUICE_HAS_CUDA
#include "models/ops/cuda_kernels.hpp"
#endif

namespace sluice {

std::unique_ptr<IKernels> make_kernels(IDevice& device) {
  const DeviceInfo& info = device.info();
  if (!info.executes) return nullptr;
  if (info.kind == DeviceKind::cpu) return make_cpu_kernels();
#if SLUICE_HAS_CUDA
  if (info.kind == DeviceKind::cuda) return make_cuda_kernels(device);
#endif
  throw Error("there are no kernels for the device {} ({})", name_of(info.kind), info.name);
}

}  // namespace sluice
