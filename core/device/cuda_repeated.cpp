#include "core/device/cuda_repeated.hpp"

#include "core/device/cuda_error.hpp"

namespace sluice {
namespace {

// The stream is in another mode while this lives.
class InMode {
 public:
  InMode(CudaStream& stream, CudaStream::Mode mode) : stream_(stream) { stream_.set_mode(mode); }
  ~InMode() { stream_.set_mode(CudaStream::Mode::plain); }
  InMode(const InMode&) = delete;
  InMode& operator=(const InMode&) = delete;

 private:
  CudaStream& stream_;
};

}  // namespace

CudaRepeated::~CudaRepeated() {
  if (graph_) cudaGraphExecDestroy(graph_);
}

void CudaRepeated::run(const std::function<void()>& enqueue) {
  stream_.refuse_within_sequence("another sequence begins");
  if (!has_run_) {
    const InMode mode(stream_, CudaStream::Mode::sequence);
    enqueue();
    has_run_ = true;
    return;
  }
  if (graph_) {
    const InMode mode(stream_, CudaStream::Mode::replay);
    enqueue();
  } else {
    const InMode mode(stream_, CudaStream::Mode::sequence);
    graph_ = capture(enqueue);
  }
  SLUICE_CUDA_CHECK(cudaGraphLaunch(graph_, stream_.native()));
}

cudaGraphExec_t CudaRepeated::capture(const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  SLUICE_CUDA_CHECK(cudaStreamBeginCapture(stream_.native(), cudaStreamCaptureModeThreadLocal));
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream_.native(), &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  SLUICE_CUDA_CHECK(cudaStreamEndCapture(stream_.native(), &graph));
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  SLUICE_CUDA_CHECK(status);
  return made;
}

}  // namespace sluice
