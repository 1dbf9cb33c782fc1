// The way onto the link for slabs that the system would not pin: two halves of pinned memory, which
// threads fill ahead of the copies.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/copy_threads.hpp"

namespace sluice {

class StagingRing {
 public:
  static constexpr std::uint64_t kHalfBytes = 32ull << 20;

  explicit StagingRing(IDevice& device, std::uint64_t half_bytes = kHalfBytes);
  // Fills that were enqueued must have been waited for.
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Enqueues a copy of host memory into the ring, behind the last reader of the part that it
  // overwrites, and makes `lane` wait for it. At most half_bytes(). Returns where it will lie.
  const std::byte* fill(StreamId lane, UnitId unit, const std::byte* from, std::uint64_t bytes);
  // What reads the last fill has been enqueued on `lane`.
  void read_on(StreamId lane);
  std::uint64_t half_bytes() const { return half_bytes_; }

 private:
  struct Half {
    std::vector<Event> readers;
    std::uint64_t used = 0;
  };

  IDevice& device_;
  std::uint64_t half_bytes_;
  Buffer memory_;
  CopyThreads threads_;
  StreamId filler_;
  std::array<Half, 2> halves_;
  std::size_t at_ = 0;
};

}  // namespace sluice
