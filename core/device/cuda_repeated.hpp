// A repeated sequence of operations, kept as a CUDA graph.
#pragma once
#include <cuda_runtime.h>

#include "core/device/cuda_stream.hpp"
#include "core/device/device.hpp"

namespace sluice {

// The graph is made at the second run: the first runs plainly, so that kernels are loaded and
// workspaces grown by then, and what runs once costs no graph.
class CudaRepeated final : public Repeated {
 public:
  // The stream must outlive this.
  explicit CudaRepeated(CudaStream& stream) : stream_(stream) {}
  ~CudaRepeated() override;  // what runs of the graph runs on

  void run(const std::function<void()>& enqueue) override;

 private:
  cudaGraphExec_t capture(const std::function<void()>& enqueue);

  CudaStream& stream_;
  bool has_run_ = false;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace sluice
