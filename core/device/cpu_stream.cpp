#include "core/device/cpu_stream.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "core/device/stream_copy.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// A hand-off between threads that are both awake takes about a microsecond, a wake-up ten or more.
// Yielding leaves the core to a kernel's threads that want it.
constexpr int kSpins = 32;
// How long before its end a timed wait stops sleeping: about the delay of a timer.
constexpr std::uint64_t kTimerDelayNs = 20'000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

template <typename Ready>
bool spin(const Ready& ready) {
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  return false;
}

void sleep_until(std::uint64_t end_ns) {
  const std::uint64_t now = steady_now_ns();
  if (end_ns > now + kTimerDelayNs)
    std::this_thread::sleep_until(Clock::time_point(std::chrono::duration_cast<Clock::duration>(
        std::chrono::nanoseconds(end_ns - kTimerDelayNs))));
  while (steady_now_ns() < end_ns) pause();
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::uint64_t steady_now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
}

void Failure::set(std::exception_ptr what) {
  const std::lock_guard lock(mutex_);
  if (what_) return;
  what_ = std::move(what);
  pending_.store(true, std::memory_order_release);
}

std::exception_ptr Failure::take() {
  const std::lock_guard lock(mutex_);
  pending_.store(false, std::memory_order_release);
  return std::exchange(what_, nullptr);
}

CpuStream::CpuStream(const char* name, Failure& failure)
    : failure_(failure), thread_([this, name] { run(name); }) {}

CpuStream::~CpuStream() {
  stop();
  thread_.join();
}

void CpuStream::post(const Item& item) {
  bool wake = false;
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back(item);
    posted_.fetch_add(1, std::memory_order_release);
    wake = idle_;
  }
  if (wake) queue_filled_.notify_one();
}

void CpuStream::stop() {
  {
    const std::lock_guard lock(queue_mutex_);
    stop_ = true;
  }
  queue_filled_.notify_one();
}

void CpuStream::await(std::uint64_t position) {
  if (spin([&] { return reached(position); })) return;
  std::unique_lock lock(done_mutex_);
  // Sequentially consistent with finish(): either it sees this waiter, or this sees the position.
  waiters_.fetch_add(1);
  done_moved_.wait(lock, [&] { return done_.load() >= position; });
  waiters_.fetch_sub(1);
}

void CpuStream::finish(std::uint64_t position) {
  done_.store(position);
  if (waiters_.load() == 0) return;
  { const std::lock_guard lock(done_mutex_); }
  done_moved_.notify_all();
}

void CpuStream::run(const char* name) {
  char short_name[16] = {};  // the kernel's limit
  std::strncpy(short_name, name, sizeof(short_name) - 1);
  pthread_setname_np(pthread_self(), short_name);
  prctl(PR_SET_TIMERSLACK, 1UL);  // a throttled copy must end on time
  std::vector<Item> work;         // swapped with the queue: both keep their capacity
  std::uint64_t position = 0;
  while (take(work)) {
    for (const Item& item : work) {
      execute(item, ++position);
      finish(position);
    }
    work.clear();
  }
}

bool CpuStream::take(std::vector<Item>& work) {
  const std::uint64_t done = done_.load(std::memory_order_relaxed);
  spin([&] { return posted_.load(std::memory_order_acquire) > done; });
  std::unique_lock lock(queue_mutex_);
  idle_ = true;
  queue_filled_.wait(lock, [&] { return stop_ || !queue_.empty(); });
  idle_ = false;
  work.swap(queue_);
  return !work.empty();
}

void CpuStream::execute(const Item& item, std::uint64_t position) {
  const auto timed = [this](const auto& work) {
    if (!keeps_times_.load(std::memory_order_acquire)) return work();
    const std::uint64_t begin = steady_now_ns();
    work();
    keep({begin, steady_now_ns()});
  };
  std::visit(Overloaded{
                 [&](const Copy& c) {
                   timed([&] {
                     if (!skips(position)) copy(c);
                   });
                 },
                 [&](const Wait& w) { wait(w); },
                 [&](const Body& body) { timed([&] { run_body(body, position); }); },
             },
             item);
}

void CpuStream::run_body(const Body& body, std::uint64_t position) {
  link_end_ns_ = 0;
  if (skips(position)) return;
  try {
    body(nullptr);
  } catch (...) {
    if (!skips(position)) failure_.set(std::current_exception());
  }
}

void CpuStream::copy(const Copy& item) {
  if (!item.link) {
    stream_copy(item.to, item.from, item.bytes);
    return;
  }
  // A copy that was queued before the last one ended follows it without a gap, as it would in
  // hardware, however late this thread woke up.
  const bool follows = link_end_ns_ != 0 && item.enqueued_ns <= link_end_ns_;
  const std::uint64_t end =
      item.link->reserve(follows ? link_end_ns_ : steady_now_ns(), item.bytes);
  stream_copy(item.to, item.from, item.bytes);
  sleep_until(end);
  link_end_ns_ = end;
}

void CpuStream::wait(const Wait& item) {
  OpTimes times{steady_now_ns(), 0};
  times.end_ns = times.begin_ns;
  if (!item.on->reached(item.position)) {
    item.on->await(item.position);
    link_end_ns_ = 0;
    times.end_ns = steady_now_ns();
  }
  if (item.why != WaitFor::weights) return;
  stall_ns_.fetch_add(times.end_ns - times.begin_ns, std::memory_order_relaxed);
  if (keeps_times_.load(std::memory_order_acquire)) keep(times);
}

void CpuStream::keep(const OpTimes& times) {
  const std::lock_guard lock(times_mutex_);
  times_.push_back(times);
}

std::vector<OpTimes> CpuStream::take_times() {
  const std::lock_guard lock(times_mutex_);
  return std::exchange(times_, {});
}

}  // namespace sluice
