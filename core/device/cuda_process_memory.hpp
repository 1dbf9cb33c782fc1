// How much of a GPU's memory this process takes, as the driver sees it.
#pragma once
#include <cstdint>

namespace sluice {

class CudaProcessMemory {
 public:
  // `ordinal` counts as CUDA does. The first one made for a GPU in a process must be made before CUDA
  // has a context there: what is taken then is other processes'.
  explicit CudaProcessMemory(int ordinal);

  // What is taken now beyond that. Another process that allocates meanwhile is counted in. Where the
  // management library (NVML) is missing, all that is taken on the GPU.
  std::uint64_t bytes() const;

 private:
  std::uint64_t taken_bytes() const;

  void* gpu_ = nullptr;  // NVML's handle; null: none
  std::uint64_t others_bytes_ = 0;
};

}  // namespace sluice
