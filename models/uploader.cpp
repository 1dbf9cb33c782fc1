#include "models/uploader.hpp"

#include <cstring>

namespace sluice {

Uploader::Uploader(Ops& ops, std::uint32_t slots, std::uint64_t slot_bytes, std::string_view what)
    : ops_(ops),
      slot_bytes_(slot_bytes),
      pinned_(ops.device(), Buffer::Where::pinned, slots * slot_bytes, what),
      sent_(slots) {}

void Uploader::send(void* to, std::initializer_list<std::span<const std::byte>> parts) {
  std::uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  if (bytes > slot_bytes_)
    throw Error("an upload of {} bytes does not fit its slot of {} bytes", bytes, slot_bytes_);

  IDevice& device = ops_.device();
  std::byte* const slot = pinned_.data() + next_ * slot_bytes_;
  device.sync(sent_[next_]);
  const Range touched = range_of(slot, bytes);
  device.host(
      {.name = "stage_upload", .on = Resource::host, .bytes = bytes, .writes = {&touched, 1}});
  if (device.info().executes) {
    std::byte* at = slot;
    for (const auto& part : parts) {
      if (!part.empty()) std::memcpy(at, part.data(), part.size());
      at += part.size();
    }
  }
  ops_.upload(to, slot, bytes);
  sent_[next_] = device.record(ops_.stream());
  next_ = (next_ + 1) % sent_.size();
}

}  // namespace sluice
