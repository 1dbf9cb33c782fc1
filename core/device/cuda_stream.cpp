#include "core/device/cuda_stream.hpp"

#include <algorithm>
#include <utility>

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
  for (const Timed& timed : timed_) {
    timers_.give(timed.before);
    timers_.give(timed.after);
  }
  if (owns_last_) timers_.give(last_.event);
  cudaStreamDestroy(stream_);
}

void CudaStream::refuse_within_sequence(const char* what) const {
  if (mode_ != Mode::plain) throw Error("{} within a repeated sequence of operations", what);
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

void CudaStream::await(const Signal& signal) {
  const auto is_set = [&] {
    for (std::uint32_t i = 0; i < signal.count; ++i) {
      // What the operation wrote before is seen as well.
      if (__atomic_load_n(signal.words + i, __ATOMIC_ACQUIRE) != signal.value) return false;
    }
    return true;
  };
  constexpr int kLooks = 1 << 14;  // then the stream is asked whether it still runs
  for (int look = 1; !is_set(); ++look) {
    if (look % kLooks != 0) continue;
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) continue;
    SLUICE_CUDA_CHECK(status);
    if (!is_set()) throw Error("a stream has ended without the signal that was waited for");
  }
}

void CudaStream::begin() {
  if (keeps_times_) begin_timed(false);
}

void CudaStream::end() {
  if (keeps_times_) end_timed();
  ++posted_;
}

void CudaStream::wait(cudaEvent_t event, bool for_weights) {
  if (!event && !(for_weights && keeps_times_)) return;
  if (for_weights) begin_timed(true);
  if (event) SLUICE_CUDA_CHECK(cudaStreamWaitEvent(stream_, event, 0));
  if (for_weights) end_timed();
  ++posted_;
}

void CudaStream::begin_timed(bool is_stall) {
  const Timed timed{timers_.take(), timers_.take(), is_stall};
  timed_.push_back(timed);
  SLUICE_CUDA_CHECK(cudaEventRecord(timed.before, stream_));
}

void CudaStream::end_timed() {
  SLUICE_CUDA_CHECK(cudaEventRecord(timed_.back().after, stream_));
  collect_timed();
}

std::uint64_t CudaStream::stall_ns() {
  collect_timed();
  return static_cast<std::uint64_t>(stall_ms_ * 1e6);
}

void CudaStream::keep_times(const CudaTime& origin) {
  keeps_times_ = true;
  last_ = origin;
}

std::vector<OpTimes> CudaStream::take_times() {
  collect_timed();
  return std::exchange(times_, {});
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

void CudaStream::collect_timed() {
  while (!timed_.empty()) {
    const Timed timed = timed_.front();
    const cudaError_t status = cudaEventQuery(timed.after);
    if (status == cudaErrorNotReady) return;
    SLUICE_CUDA_CHECK(status);
    if (timed.is_stall) {
      float ms = 0;
      SLUICE_CUDA_CHECK(cudaEventElapsedTime(&ms, timed.before, timed.after));
      stall_ms_ += static_cast<double>(ms);
    }
    timed_.pop_front();
    if (keeps_times_) {
      times_.push_back(times_of(timed));
    } else {
      timers_.give(timed.after);
    }
    timers_.give(timed.before);
  }
}

OpTimes CudaStream::times_of(const Timed& timed) {
  float until_begin_ms = 0, ms = 0;
  SLUICE_CUDA_CHECK(cudaEventElapsedTime(&until_begin_ms, last_.event, timed.before));
  SLUICE_CUDA_CHECK(cudaEventElapsedTime(&ms, timed.before, timed.after));
  const double begin_ns = last_.ns + static_cast<double>(until_begin_ms) * 1e6;
  const double end_ns = begin_ns + static_cast<double>(ms) * 1e6;
  if (owns_last_) timers_.give(last_.event);
  last_ = {timed.after, end_ns};
  owns_last_ = true;
  return {static_cast<std::uint64_t>(begin_ns), static_cast<std::uint64_t>(end_ns)};
}

}  // namespace sluice
