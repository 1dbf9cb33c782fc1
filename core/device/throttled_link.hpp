// One direction of a slow link: copies take it one after the other, each for as long as its bytes
// need. Only arithmetic; whoever copies does the waiting.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>

namespace sluice {

class ThrottledLink {
 public:
  // `gbps`: 1e9 bytes a second, more than 0.
  explicit ThrottledLink(double gbps) : ns_per_byte_(1.0 / gbps) {}

  // Takes the link for `bytes`, from `ready_ns` or when the copies before it are through. Returns
  // when the last byte is across. May be called from any thread; the order of calls is the order
  // on the link.
  std::uint64_t reserve(std::uint64_t ready_ns, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (ready_ns > free_ns_) {
      free_ns_ = ready_ns;
      rest_ns_ = 0;
    }
    // The fraction of a nanosecond is carried on, so that many small copies keep the rate.
    const double takes = rest_ns_ + static_cast<double>(bytes) * ns_per_byte_;
    const auto whole = static_cast<std::uint64_t>(takes);
    rest_ns_ = takes - static_cast<double>(whole);
    free_ns_ += whole;
    return free_ns_;
  }

 private:
  const double ns_per_byte_;
  std::mutex mutex_;
  std::uint64_t free_ns_ = 0;
  double rest_ns_ = 0;
};

}  // namespace sluice
