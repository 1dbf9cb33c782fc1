#include "core/device/cuda_stream.hpp"

#include <algorithm>

#include "core/device/cuda_error.hpp"

namespace sluice {

CudaEventPool::~CudaEventPool() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t CudaEventPool::take() {
  cudaEvent_t event = nullptr;
  if (free_.empty()) {
    SLUICE_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags_));
    return event;
  }
  event = free_.back();
  free_.pop_back();
  return event;
}

CudaStream::CudaStream(CudaEventPool& events, CudaEventPool& timers, int priority)
    : events_(events), timers_(timers) {
  SLUICE_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(stream_);
  for (const Mark& mark : marks_) events_.give(mark.event);
  for (const TimedWait& wait : waits_) {
    timers_.give(wait.before);
    timers_.give(wait.after);
  }
  cudaStreamDestroy(stream_);
}

std::uint64_t CudaStream::record() {
  collect_marks();
  const bool known =
      posted_ == completed_ || (!marks_.empty() && marks_.back().position == posted_);
  if (known) return posted_;
  const cudaEvent_t event = events_.take();
  marks_.push_back({posted_, event});
  SLUICE_CUDA_CHECK(cudaEventRecord(event, stream_));
  return posted_;
}

cudaEvent_t CudaStream::event_at(std::uint64_t position) {
  if (position <= completed_) return nullptr;
  const auto mark = std::ranges::lower_bound(marks_, position, {}, &Mark::position);
  if (mark == marks_.end())
    throw Error("position {} of a stream is waited for but was never recorded", position);
  return mark->event;
}

bool CudaStream::reached(std::uint64_t position) {
  collect_marks();
  return position <= completed_;
}

void CudaStream::await(std::uint64_t position) {
  if (const cudaEvent_t event = event_at(position)) SLUICE_CUDA_CHECK(cudaEventSynchronize(event));
  collect_marks();
}

void CudaStream::wait(cudaEvent_t event, bool timed) {
  if (!timed) {
    SLUICE_CUDA_CHECK(cudaStreamWaitEvent(stream_, event, 0));
    return;
  }
  const TimedWait wait{timers_.take(), timers_.take()};
  waits_.push_back(wait);
  SLUICE_CUDA_CHECK(cudaEventRecord(wait.before, stream_));
  SLUICE_CUDA_CHECK(cudaStreamWaitEvent(stream_, event, 0));
  SLUICE_CUDA_CHECK(cudaEventRecord(wait.after, stream_));
  collect_waits();
}

std::uint64_t CudaStream::stall_ns() {
  collect_waits();
  return static_cast<std::uint64_t>(stall_ms_ * 1e6);
}

// An event is given back only when it has completed: recorded again before, it would mean two
// things at once.
void CudaStream::collect_marks() {
  while (!marks_.empty()) {
    const cudaError_t status = cudaEventQuery(marks_.front().event);
    if (status == cudaErrorNotReady) return;
    SLUICE_CUDA_CHECK(status);
    completed_ = marks_.front().position;
    events_.give(marks_.front().event);
    marks_.pop_front();
  }
}

void CudaStream::collect_waits() {
  while (!waits_.empty()) {
    const TimedWait wait = waits_.front();
    const cudaError_t status = cudaEventQuery(wait.after);
    if (status == cudaErrorNotReady) return;
    SLUICE_CUDA_CHECK(status);
    float ms = 0;
    SLUICE_CUDA_CHECK(cudaEventElapsedTime(&ms, wait.before, wait.after));
    stall_ms_ += static_cast<double>(ms);
    timers_.give(wait.before);
    timers_.give(wait.after);
    waits_.pop_front();
  }
}

}  // namespace sluice
