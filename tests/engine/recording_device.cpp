#include "tests/engine/recording_device.hpp"

#include <algorithm>

namespace sluice::test {

RecordingDevice::RecordingDevice(const Options& options)
    : reach(options.reach), lose_(options.lose), rng_(options.seed), now_(1), resources_(1) {
  info_.name = "recorder";
  info_.memory_bytes = info_.memory_limit = options.memory_limit;
  info_.executes = false;
}

bool RecordingDevice::holds(Range range, const void* source) const {
  const auto from = reinterpret_cast<std::uint64_t>(source);
  const std::uint64_t end = range.begin + range.size;
  std::uint64_t at = range.begin;
  auto cell = cells_.upper_bound(at);
  if (cell == cells_.begin()) return false;
  for (--cell; at < end; ++cell) {
    if (cell == cells_.end() || cell->first > at || cell->second.end <= at) return false;
    if (cell->second.source == 0) return false;
    if (cell->second.source + (at - cell->first) != from + (at - range.begin)) return false;
    at = cell->second.end;
  }
  return true;
}

std::uint64_t RecordingDevice::copied_bytes(std::string_view name) const {
  std::uint64_t sum = 0;
  for (const Call& call : calls)
    if (call.what == name) sum += call.bytes;
  return sum;
}

StreamId RecordingDevice::make_stream(Resource resource, const char*) {
  if (now_.size() == kLines) throw Error("the recorder has {} streams at most", kLines - 1);
  now_.emplace_back();
  resources_.push_back(resource);
  return static_cast<StreamId>(now_.size() - 1);
}

void RecordingDevice::enqueue(StreamId stream, const Op& op, const Body&) { access(stream, op, 0); }

void RecordingDevice::copy(StreamId stream, const Op& op, void* to, const void* from,
                           std::uint64_t bytes) {
  const Range reads = range_of(from, bytes), writes = range_of(to, bytes);
  const auto is = [](std::span<const Range> declared, Range range) {
    return declared.size() == 1 && declared[0].begin == range.begin &&
           declared[0].size == range.size;
  };
  if (!is(op.reads, reads) || !is(op.writes, writes) || op.bytes != bytes)
    violations.push_back(std::string(op.name) + " declares other bytes than it copies");
  access(stream, op, reads.begin);
}

void RecordingDevice::access(StreamId stream, const Op& op, std::uint64_t source) {
  calls.push_back({op.name, stream, op.unit, op.bytes});
  Clock& clock = now_[stream];
  for (std::size_t i = 0; i < kLines; ++i) clock[i] = std::max(clock[i], now_[kHostLine][i]);
  const Access here{stream, ++clock[stream], op.name};
  for (Range range : op.reads) {
    cover(range);
    for (auto c = cells_.find(range.begin);
         c != cells_.end() && c->first < range.begin + range.size; ++c) {
      check(c->second.write, clock, here, "reads before it is written by");
      auto& reads = c->second.reads;
      const auto same = std::find_if(reads.begin(), reads.end(),
                                     [&](const Access& a) { return a.stream == stream; });
      same == reads.end() ? reads.push_back(here) : void(*same = here);
    }
  }
  for (Range range : op.writes) {
    cover(range);
    for (auto c = cells_.find(range.begin);
         c != cells_.end() && c->first < range.begin + range.size; ++c) {
      check(c->second.write, clock, here, "writes without waiting for");
      for (const Access& read : c->second.reads)
        check(read, clock, here, "writes what is still read by");
      c->second.write = here;
      c->second.reads.clear();
      c->second.source = source == 0 ? 0 : source + (c->first - range.begin);
    }
  }
}

void RecordingDevice::check(const Access& before, const Clock& now, const Access& after,
                            const char* how) {
  if (before.at <= now[before.stream]) return;
  violations.push_back(fmt::format("{} on stream {} {} {} on stream {}", after.name, after.stream,
                                   how, before.name, before.stream));
}

RecordingDevice::Cells::iterator RecordingDevice::split(std::uint64_t at) {
  auto next = cells_.lower_bound(at);
  if (next != cells_.end() && next->first == at) return next;
  if (next == cells_.begin()) return next;
  const auto cell = std::prev(next);
  if (cell->second.end <= at) return next;
  Cell rest = cell->second;
  if (rest.source != 0) rest.source += at - cell->first;
  cell->second.end = at;
  return cells_.emplace_hint(next, at, std::move(rest));
}

// Afterwards cells begin and end where the range does, without gaps.
void RecordingDevice::cover(Range range) {
  const std::uint64_t end = range.begin + range.size;
  split(end);
  auto cell = split(range.begin);
  for (std::uint64_t at = range.begin; at < end; ++cell) {
    if (cell == cells_.end() || cell->first > at) {
      const std::uint64_t stop = cell == cells_.end() ? end : std::min(end, cell->first);
      cell = cells_.emplace_hint(cell, at, Cell{.end = stop, .write = {}, .reads = {}});
    }
    at = cell->second.end;
  }
}

Event RecordingDevice::record(StreamId stream) {
  events_.push_back(now_[stream]);
  return {stream, events_.size()};
}

void RecordingDevice::join(StreamId stream, Event event) {
  if (event.position == 0) return;
  const Clock& then = events_[event.position - 1];
  for (std::size_t i = 0; i < kLines; ++i) now_[stream][i] = std::max(now_[stream][i], then[i]);
}

void RecordingDevice::wait(StreamId stream, Event event, WaitFor why) {
  calls.push_back({why == WaitFor::weights ? "wait for weights" : "wait", stream});
  if (lose_ == Lose::weights && why == WaitFor::weights) return;
  if (lose_ == Lose::lane && resources_[stream] == Resource::h2d) return;
  join(stream, event);
}

void RecordingDevice::sync(Event event) {
  calls.push_back({"sync"});
  join(kHostLine, event);
}

bool RecordingDevice::reached(Event event) {
  if (event.position == 0 || reach == Reach::always) return true;
  return reach == Reach::random && rng_() % 3 == 0;
}

void RecordingDevice::host(const Op& op) { access(kHostLine, op, 0); }

void* RecordingDevice::place(std::uint64_t bytes) {
  const std::uint64_t at = next_address_;
  next_address_ += (bytes + 4095) / 4096 * 4096 + 4096;
  blocks_.emplace(at, bytes);
  return reinterpret_cast<void*>(at);
}

// Memory must be at rest when it is given back.
std::uint64_t RecordingDevice::unplace(void* memory) {
  const auto block = blocks_.find(reinterpret_cast<std::uint64_t>(memory));
  const std::uint64_t bytes = block->second, begin = block->first;
  const Access here{kHostLine, 0, "release"};
  for (auto c = cells_.lower_bound(begin); c != cells_.end() && c->first < begin + bytes;) {
    check(c->second.write, now_[kHostLine], here, "frees what is still written by");
    for (const Access& read : c->second.reads)
      check(read, now_[kHostLine], here, "frees what is still read by");
    c = cells_.erase(c);
  }
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
