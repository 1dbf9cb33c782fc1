#include "core/device/cuda_process_memory.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/device/cuda_error.hpp"

namespace sluice {
namespace {

// The part of NVML in use. It comes with the driver, its header does not: the declarations are those
// of its reference manual, unchanged since version 2 of each call.
struct NvmlMemory {
  unsigned long long total, free, used;
};

class Nvml {
 public:
  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    gpu_at_ = reinterpret_cast<int (*)(const char*, void**)>(
        dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    memory_of_ =
        reinterpret_cast<int (*)(void*, NvmlMemory*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
    usable_ = init && gpu_at_ && memory_of_ && init() == 0;
  }
  void* gpu_at(const char* pci_bus_id) const {
    void* gpu = nullptr;
    return usable_ && gpu_at_(pci_bus_id, &gpu) == 0 ? gpu : nullptr;
  }
  bool used_bytes(void* gpu, std::uint64_t& bytes) const {
    NvmlMemory memory{};
    if (memory_of_(gpu, &memory) != 0) return false;
    bytes = memory.used;
    return true;
  }

 private:
  int (*gpu_at_)(const char*, void**) = nullptr;
  int (*memory_of_)(void*, NvmlMemory*) = nullptr;
  bool usable_ = false;
};

// Stays loaded: a second device of the process uses it again.
const Nvml& nvml() {
  static const Nvml one;
  return one;
}

// What was taken on a GPU when this process first looked.
std::uint64_t first_seen(void* gpu, std::uint64_t bytes) {
  static std::mutex mutex;
  static std::map<void*, std::uint64_t> seen;
  const std::scoped_lock lock(mutex);
  return seen.emplace(gpu, bytes).first->second;
}

}  // namespace

CudaProcessMemory::CudaProcessMemory(int ordinal) {
  char pci_bus_id[32];
  SLUICE_CUDA_CHECK(cudaDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id, ordinal));
  gpu_ = nvml().gpu_at(pci_bus_id);
  if (gpu_) others_bytes_ = first_seen(gpu_, taken_bytes());
}

std::uint64_t CudaProcessMemory::bytes() const {
  const std::uint64_t taken = taken_bytes();
  return taken - std::min(taken, others_bytes_);
}

std::uint64_t CudaProcessMemory::taken_bytes() const {
  std::uint64_t used = 0;
  if (gpu_ && nvml().used_bytes(gpu_, used)) return used;
  std::size_t free = 0, total = 0;
  SLUICE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return total - free;
}

}  // namespace sluice
