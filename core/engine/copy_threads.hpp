// Copies between places in host memory with several threads: one alone does not fill the link.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

class CopyThreads {
 public:
  explicit CopyThreads(unsigned threads);  // at least 1
  ~CopyThreads();
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  // Returns when all is copied. Called by one thread at a time.
  void copy(std::byte* to, const std::byte* from, std::uint64_t bytes);

 private:
  struct Job {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
  };

  void work(std::size_t thread);

  std::mutex mutex_;
  std::condition_variable begun_, done_;
  Job job_;
  std::uint64_t turn_ = 0;  // jobs begun
  std::size_t busy_ = 0;    // threads that are at the present one
  bool stop_ = false;
  std::vector<std::jthread> threads_;  // last: they use everything above
};

}  // namespace sluice
