#include "models/logit_reader.hpp"

#include <algorithm>

namespace sluice {
namespace {

constexpr std::uint32_t kSlots = 2;

}  // namespace

LogitReader::LogitReader(Ops& ops, const WorkspaceLayout& device, std::uint32_t rows,
                         std::uint32_t vocab, DType type)
    : ops_(ops),
      device_(device),
      rows_(rows),
      row_bytes_(vocab * size_of(type)),
      pinned_(ops.device(), Buffer::Where::pinned, kSlots * rows * row_bytes_, "rows of logits") {}

void LogitReader::read(std::uint32_t count, const Head& head, const LogitSink& sink) {
  Group before;
  for (std::uint32_t first = 0; first < count; first += rows_) {
    Group group{first, std::min(rows_, count - first), {}};
    head(group.first, group.count);
    ops_.download(slot(group), device_.logits, group.count * row_bytes_);
    group.arrived = ops_.device().record(ops_.stream());
    if (before.count > 0) hand_out(before, sink);
    before = group;
  }
  hand_out(before, sink);
}

std::byte* LogitReader::slot(const Group& group) const {
  return pinned_.data() + group.first / rows_ % kSlots * rows_ * row_bytes_;
}

void LogitReader::hand_out(const Group& group, const LogitSink& sink) const {
  IDevice& device = ops_.device();
  device.sync(group.arrived);
  const Range touched = range_of(slot(group), group.count * row_bytes_);
  device.host(
      {.name = "read_logits", .on = Resource::host, .bytes = touched.size, .reads = {&touched, 1}});
  if (device.info().executes)
    sink({group.first, group.count, {slot(group), group.count * row_bytes_}});
}

}  // namespace sluice
