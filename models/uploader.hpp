// Small data of the host's on its way to the device, in stream order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/device/device.hpp"
#include "models/ops/ops.hpp"

namespace sluice {

// A ring of pinned slots. The caller's data is copied aside, so it may change at once; a slot is
// written again only when the copy out of it is done, and the host waits for that. With more slots
// than uploads under way it never does.
class Uploader {
 public:
  // `what` names the pinned memory in errors. `ops` must outlive this, and its stream must be done
  // before this ends.
  Uploader(Ops& ops, std::uint32_t slots, std::uint64_t slot_bytes, std::string_view what);

  // Enqueues the upload of `parts`, one after another without gaps, to device memory at `to`.
  // Throws Error when they are more than a slot holds.
  void send(void* to, std::initializer_list<std::span<const std::byte>> parts);

 private:
  Ops& ops_;
  std::uint64_t slot_bytes_;
  Buffer pinned_;
  std::vector<Event> sent_;  // of each slot's latest upload
  std::size_t next_ = 0;
};

}  // namespace sluice
