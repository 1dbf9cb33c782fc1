// A CUDA stream whose events are positions: how many operations were enqueued before.
#pragma once
#include <cuda_runtime.h>

#include <deque>
#include <vector>

#include "core/device/device.hpp"

namespace sluice {

// Events that nobody waits for any more, to be recorded again. One pool per device.
class CudaEventPool {
 public:
  explicit CudaEventPool(unsigned flags) : flags_(flags) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  cudaEvent_t take();
  void give(cudaEvent_t event) { free_.push_back(event); }

 private:
  unsigned flags_;
  std::vector<cudaEvent_t> free_;
};

class CudaStream {
 public:
  CudaStream(CudaEventPool& events, CudaEventPool& timers, int priority);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t native() const { return stream_; }
  void advance() { ++posted_; }
  // The position after everything enqueued so far, with an event behind it.
  std::uint64_t record();
  // An event that was recorded at `position` or later; null when that position has been reached.
  cudaEvent_t event_at(std::uint64_t position);
  bool reached(std::uint64_t position);
  void await(std::uint64_t position);
  // Makes this stream wait for `event`, with timing events around the wait when `timed`.
  void wait(cudaEvent_t event, bool timed);
  std::uint64_t stall_ns();

 private:
  struct Mark {
    std::uint64_t position = 0;
    cudaEvent_t event = nullptr;
  };
  struct TimedWait {
    cudaEvent_t before = nullptr, after = nullptr;
  };

  void collect_marks();
  void collect_waits();

  CudaEventPool& events_;
  CudaEventPool& timers_;
  cudaStream_t stream_ = nullptr;
  std::uint64_t posted_ = 0;     // operations enqueued
  std::uint64_t completed_ = 0;  // known to have been done
  std::deque<Mark> marks_;       // recorded, not known to be reached; ascending
  std::deque<TimedWait> waits_;
  double stall_ms_ = 0;
};

}  // namespace sluice
