#include "core/device/memory_book.hpp"

#include <algorithm>

namespace sluice {
namespace {

std::uint64_t remove(std::unordered_map<void*, std::uint64_t>& blocks, void* memory,
                     std::uint64_t& total) {
  const std::uint64_t bytes = blocks.at(memory);
  blocks.erase(memory);
  total -= bytes;
  return bytes;
}

}  // namespace

std::uint64_t MemoryBook::admit(std::uint64_t bytes, std::string_view what,
                                std::uint64_t other_bytes) const {
  const std::uint64_t free = limit_ - std::min(limit_, use_.device_bytes + other_bytes);
  // Compared before rounding up, which could overflow.
  if (bytes <= free) {
    const std::uint64_t counted =
        std::max<std::uint64_t>(1, bytes / kDeviceAlignment + (bytes % kDeviceAlignment != 0)) *
        kDeviceAlignment;
    if (counted <= free) return counted;
  }
  throw MemoryLimitError("asked for {} bytes for {}: {} of {} bytes of device memory are in use{}",
                         bytes, what, use_.device_bytes, limit_,
                         other_bytes ? fmt::format(", and {} beside", other_bytes) : "");
}

void MemoryBook::add_device(void* memory, std::uint64_t counted_bytes) {
  device_.emplace(memory, counted_bytes);
  use_.device_bytes += counted_bytes;
  use_.device_peak_bytes = std::max(use_.device_peak_bytes, use_.device_bytes);
}

void MemoryBook::add_pinned(void* memory, std::uint64_t bytes) {
  pinned_.emplace(memory, bytes);
  use_.pinned_bytes += bytes;
  use_.pinned_peak_bytes = std::max(use_.pinned_peak_bytes, use_.pinned_bytes);
}

std::uint64_t MemoryBook::remove_device(void* memory) {
  return remove(device_, memory, use_.device_bytes);
}

std::uint64_t MemoryBook::remove_pinned(void* memory) {
  return remove(pinned_, memory, use_.pinned_bytes);
}

}  // namespace sluice
