#include "tests/engine/recording_device.hpp"

#include <algorithm>

namespace sluice::test {

RecordingDevice::RecordingDevice(const Options& options)
    : reach(options.reach), rng_(options.seed) {
  info_.name = "recorder";
  info_.memory_bytes = info_.memory_limit = options.memory_limit;
  info_.executes = false;
}

bool RecordingDevice::holds(Range range, const void* source) const {
  const auto from = reinterpret_cast<std::uint64_t>(source);
  const std::uint64_t end = range.begin + range.size;
  std::uint64_t at = range.begin;
  auto piece = copied_.upper_bound(at);
  if (piece == copied_.begin()) return false;
  for (--piece; at < end; ++piece) {
    if (piece == copied_.end() || piece->first > at || piece->second.end <= at) return false;
    if (piece->second.source + (at - piece->first) != from + (at - range.begin)) return false;
    at = piece->second.end;
  }
  return true;
}

std::uint64_t RecordingDevice::copied_bytes(std::string_view name) const {
  std::uint64_t sum = 0;
  for (const Call& call : calls)
    if (call.what == name) sum += call.bytes;
  return sum;
}

void RecordingDevice::enqueue(StreamId stream, const Op& op, const Body&) { take(stream, op); }

void RecordingDevice::copy(StreamId stream, const Op& op, void* to, const void* from,
                           std::uint64_t bytes) {
  const Range reads = range_of(from, bytes), writes = range_of(to, bytes);
  const auto is = [](std::span<const Range> declared, Range range) {
    return declared.size() == 1 && declared[0].begin == range.begin &&
           declared[0].size == range.size;
  };
  if (!is(op.reads, reads) || !is(op.writes, writes) || op.bytes != bytes)
    throw Error("{} declares other bytes than it copies", op.name);
  take(stream, op);
  copied_[writes.begin] = {writes.begin + writes.size, reads.begin};
}

void RecordingDevice::take(StreamId stream, const Op& op) {
  calls.push_back({op.name, stream, op.unit, op.bytes});
  for (Range range : op.writes) forget(range);
}

void RecordingDevice::forget(Range range) {
  const std::uint64_t end = range.begin + range.size;
  const auto split = [&](std::uint64_t at) {
    const auto next = copied_.upper_bound(at);
    if (next == copied_.begin()) return;
    auto& [begin, piece] = *std::prev(next);
    if (begin == at || piece.end <= at) return;
    copied_.emplace_hint(next, at, Piece{piece.end, piece.source + (at - begin)});
    piece.end = at;
  };
  split(range.begin);
  split(end);
  copied_.erase(copied_.lower_bound(range.begin), copied_.lower_bound(end));
}

void RecordingDevice::wait(StreamId stream, Event, WaitFor why) {
  calls.push_back({why == WaitFor::weights ? "wait for weights" : "wait", stream});
}

void RecordingDevice::sync(Event) { calls.push_back({"sync"}); }

bool RecordingDevice::reached(Event event) {
  if (event.position == 0 || reach == Reach::always) return true;
  return reach == Reach::random && rng_() % 3 == 0;
}

void RecordingDevice::host(const Op& op) { take(kHostLine, op); }

void* RecordingDevice::place(std::uint64_t bytes) {
  const std::uint64_t at = next_address_;
  next_address_ += (bytes + 4095) / 4096 * 4096 + 4096;
  blocks_.emplace(at, bytes);
  return reinterpret_cast<void*>(at);
}

std::uint64_t RecordingDevice::unplace(void* memory) {
  const auto block = blocks_.find(reinterpret_cast<std::uint64_t>(memory));
  const std::uint64_t bytes = block->second;
  forget({block->first, bytes});
  blocks_.erase(block);
  return bytes;
}

void* RecordingDevice::allocate(std::uint64_t bytes, std::string_view what) {
  if (use_.device_bytes + bytes > info_.memory_limit)
    throw MemoryLimitError("{} bytes for {} do not fit", bytes, what);
  use_.device_bytes += bytes;
  use_.device_peak_bytes = std::max(use_.device_peak_bytes, use_.device_bytes);
  return place(bytes);
}

void RecordingDevice::release(void* memory) noexcept { use_.device_bytes -= unplace(memory); }

void* RecordingDevice::allocate_pinned(std::uint64_t bytes, std::string_view) {
  use_.pinned_bytes += bytes;
  return place(bytes);
}

void RecordingDevice::release_pinned(void* memory) noexcept {
  use_.pinned_bytes -= unplace(memory);
}

}  // namespace sluice::test
