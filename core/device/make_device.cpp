#include "core/device/make_device.hpp"

#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#if SLUICE_HAS_CUDA
#include "core/device/cuda_device.hpp"
#endif

namespace sluice {

std::unique_ptr<IDevice> make_device(const DeviceSpec& spec) {
  if (spec.link_gbps && spec.kind != DeviceKind::cpu)
    throw InputError("device '{}': a link's rate can be given for the device 'cpu' only",
                     name_of(spec.kind));
  if (spec.kind == DeviceKind::cpu)
    return make_cpu_device({.memory_limit = spec.memory_limit, .link_gbps = spec.link_gbps});
  if (spec.kind == DeviceKind::sim) {
    if (!spec.machine) throw InputError("device 'sim': it needs a machine to imitate");
    return make_sim_device(*spec.machine, spec.memory_limit);
  }
#if SLUICE_HAS_CUDA
  return make_cuda_device({.memory_limit = spec.memory_limit});
#else
  throw InputError("device '{}': this build has the devices: cpu, sim", name_of(spec.kind));
#endif
}

}  // namespace sluice
