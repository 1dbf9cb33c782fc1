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

// A place on the GPU's own clock and the same on that of IDevice::now_ns().
struct CudaTime {
  cudaEvent_t event = nullptr;
  double ns = 0;
};

class CudaStream {
 public:
  CudaStream(CudaEventPool& events, CudaEventPool& timers, int priority);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // Within a repeated sequence operations go to the stream, or, in a replay, are only counted.
  enum class Mode : std::uint8_t { plain, sequence, replay };
  Mode mode() const { return mode_; }
  void set_mode(Mode mode) { mode_ = mode; }
  // Throws Error unless the mode is plain.
  void refuse_within_sequence(const char* what) const;

  cudaStream_t native() const { return stream_; }
  // Around each operation that is enqueued.
  void begin();
  void end();
  // The position after everything enqueued so far, with an event behind it.
  std::uint64_t record();
  // An event that was recorded at `position` or later; null when that position has been reached.
  cudaEvent_t event_at(std::uint64_t position);
  bool reached(std::uint64_t position);
  void await(std::uint64_t position);
  // Watches the words, which takes microseconds less than waiting for an event. Throws where the stream
  // fails, or has come to its end without them.
  void await(const Signal& signal);
  // Makes this stream wait for `event`, null when that was reached before. A wait for weights is
  // timed.
  void wait(cudaEvent_t event, bool for_weights);
  std::uint64_t stall_ns();
  // Times are told from `origin`, which must outlive the stream.
  void keep_times(const CudaTime& origin);
  bool keeps_times() const { return keeps_times_; }
  std::vector<OpTimes> take_times();

 private:
  struct Mark {
    std::uint64_t position = 0;
    cudaEvent_t event = nullptr;
  };
  struct Timed {
    cudaEvent_t before = nullptr, after = nullptr;
    bool is_stall = false;
  };

  void collect_marks();
  void begin_timed(bool is_stall);
  void end_timed();
  void collect_timed();
  OpTimes times_of(const Timed& timed);

  CudaEventPool& events_;
  CudaEventPool& timers_;
  cudaStream_t stream_ = nullptr;
  Mode mode_ = Mode::plain;
  std::uint64_t posted_ = 0;     // operations and waits enqueued
  std::uint64_t completed_ = 0;  // known to have been done
  std::deque<Mark> marks_;       // recorded, not known to be reached; ascending
  std::deque<Timed> timed_;      // not known to be over, in order
  double stall_ms_ = 0;
  bool keeps_times_ = false;
  CudaTime last_;  // the end of the last one that was timed: intervals from there are short enough
                   // for the 24 bits of cudaEventElapsedTime
  bool owns_last_ = false;
  std::vector<OpTimes> times_;
};

}  // namespace sluice
