// A stream of the CPU device: a thread and its queue.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "core/device/device.hpp"
#include "core/device/throttled_link.hpp"

namespace sluice {

// The first exception out of a body, on its way to the host.
class Failure {
 public:
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  void set(std::exception_ptr what);
  std::exception_ptr take();  // null when there is none

 private:
  std::mutex mutex_;
  std::exception_ptr what_;
  std::atomic<bool> pending_{false};
};

std::uint64_t steady_now_ns();

class CpuStream {
 public:
  struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    std::uint64_t bytes = 0;
    ThrottledLink* link = nullptr;  // null: not throttled
    std::uint64_t enqueued_ns = 0;  // only when throttled
  };
  struct Wait {
    CpuStream* on;
    std::uint64_t position;
    WaitFor why;
  };
  using Item = std::variant<Copy, Wait, Body>;

  CpuStream(const char* name, Failure& failure);
  ~CpuStream();  // works off the queue first
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  // Of the host's thread:
  void post(const Item& item);
  std::uint64_t posted() const { return posted_.load(std::memory_order_relaxed); }
  void keep_times() { keeps_times_.store(true, std::memory_order_release); }
  void skip_all_posted() { skip_until_.store(posted(), std::memory_order_release); }
  // No more is posted; what was is worked off.
  void stop();

  // Of any thread:
  bool reached(std::uint64_t position) const {
    return done_.load(std::memory_order_acquire) >= position;
  }
  void await(std::uint64_t position);
  std::uint64_t stall_ns() const { return stall_ns_.load(std::memory_order_relaxed); }
  std::vector<OpTimes> take_times();

 private:
  void run(const char* name);
  bool take(std::vector<Item>& work);
  void execute(const Item& item, std::uint64_t position);
  void copy(const Copy& item);
  void wait(const Wait& item);
  void run_body(const Body& body, std::uint64_t position);
  void keep(const OpTimes& times);
  void finish(std::uint64_t position);
  bool skips(std::uint64_t position) const {
    return failure_.pending() || position <= skip_until_.load(std::memory_order_acquire);
  }

  Failure& failure_;
  std::atomic<std::uint64_t> posted_{0}, done_{0}, skip_until_{0}, stall_ns_{0};

  std::mutex queue_mutex_;
  std::condition_variable queue_filled_;
  std::vector<Item> queue_;
  bool stop_ = false, idle_ = false;

  std::atomic<bool> keeps_times_{false};
  std::mutex times_mutex_;
  std::vector<OpTimes> times_;

  std::mutex done_mutex_;
  std::condition_variable done_moved_;
  std::atomic<std::uint32_t> waiters_{0};

  // When the copy before this item was through by the link's clock; 0 when a body or a wait that
  // took time came between. Of the stream's thread only.
  std::uint64_t link_end_ns_ = 0;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace sluice
