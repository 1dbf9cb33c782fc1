#include "core/engine/copy_threads.hpp"

#include <algorithm>
#include <cstring>

namespace sluice {

CopyThreads::CopyThreads(unsigned threads) {
  for (std::size_t i = 0; i < std::max(1u, threads); ++i)
    threads_.emplace_back([this, i] { work(i); });
}

CopyThreads::~CopyThreads() {
  const std::scoped_lock lock(mutex_);
  stop_ = true;
  begun_.notify_all();
}

void CopyThreads::copy(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  job_ = {to, from, bytes};
  busy_ = threads_.size();
  ++turn_;
  begun_.notify_all();
  done_.wait(lock, [this] { return busy_ == 0; });
}

void CopyThreads::work(std::size_t thread) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t seen = 0;;) {
    begun_.wait(lock, [&] { return stop_ || turn_ != seen; });
    if (turn_ == seen) return;
    seen = turn_;
    const Job job = job_;
    const std::uint64_t count = threads_.size();
    lock.unlock();
    const std::uint64_t first = job.bytes * thread / count;
    const std::uint64_t last = job.bytes * (thread + 1) / count;
    std::memcpy(job.to + first, job.from + first, last - first);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace sluice
