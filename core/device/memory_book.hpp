// Who may allocate how much: the accounting behind a device's memory, the same for every kind.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "core/device/device.hpp"

namespace sluice {

// Where device allocations begin. A block counts as its size rounded up to this, and as nothing
// more: pages and the allocator's own needs are not part of the limit.
inline constexpr std::uint64_t kDeviceAlignment = 256;

class MemoryBook {
 public:
  explicit MemoryBook(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  // What a block of `bytes` counts as. Throws MemoryLimitError, with the figures and `what` the
  // block is for, when it would pass the limit. `other_bytes` are MemoryUse's.
  std::uint64_t admit(std::uint64_t bytes, std::string_view what,
                      std::uint64_t other_bytes = 0) const;
  void add_device(void* memory, std::uint64_t counted_bytes);
  void add_pinned(void* memory, std::uint64_t bytes);
  // Returns the bytes that the block counted as. Memory that is not in the book throws
  // std::out_of_range: its owner has a bug.
  std::uint64_t remove_device(void* memory);
  std::uint64_t remove_pinned(void* memory);

  const MemoryUse& use() const { return use_; }

 private:
  std::uint64_t limit_;
  MemoryUse use_;
  std::unordered_map<void*, std::uint64_t> device_, pinned_;
};

}  // namespace sluice
