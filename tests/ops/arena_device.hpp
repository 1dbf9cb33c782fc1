// A device for tests of declarations: it runs each operation at once, in one block of memory whose
// earlier contents it keeps, and remembers what was declared.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.hpp"

namespace sluice::test {

struct Recorded {
  std::string name;
  Resource on = Resource::compute;
  std::uint64_t bytes = 0, flops = 0;
  std::vector<Range> reads, writes;
  std::optional<Body> body;  // none for a copy
};

class ArenaDevice final : public IDevice {
 public:
  ArenaDevice() : arena_(kArenaBytes) { info_.name = "arena"; }

  std::vector<std::byte>& arena() { return arena_; }
  const std::vector<std::byte>& before_last() const { return before_; }
  const Recorded& last() const { return last_; }

  bool lies_in(std::size_t offset, const std::vector<Range>& ranges) const {
    const std::uint64_t at = range_of(arena_.data() + offset, 1).begin;
    for (const Range& range : ranges) {
      if (at >= range.begin && at < range.begin + range.size) return true;
    }
    return false;
  }

  const DeviceInfo& info() const override { return info_; }
  StreamId make_stream(Resource, const char*) override { return 1; }
  void enqueue(StreamId, const Op& op, const Body& body) override {
    remember(op);
    last_.body = body;
    body(nullptr);
  }
  void copy(StreamId, const Op& op, void* to, const void* from, std::uint64_t bytes) override {
    remember(op);
    std::memcpy(to, from, bytes);
  }
  Event record(StreamId) override { return {}; }
  void wait(StreamId, Event, WaitFor) override {}
  void sync(Event) override {}
  bool reached(Event) override { return true; }
  void host(const Op&) override {}
  std::uint64_t now_ns() override { return 0; }
  std::uint64_t stall_ns(StreamId) override { return 0; }
  void keep_times(StreamId) override {}
  std::vector<OpTimes> take_times(StreamId) override { return {}; }

  void* allocate(std::uint64_t bytes, std::string_view what) override {
    if (used_ + bytes > kArenaBytes) throw MemoryLimitError("no room for {}", what);
    std::byte* data = arena_.data() + used_;
    used_ += (bytes + 63) / 64 * 64 + 64;  // a gap, so that reading past an end shows
    return data;
  }
  void release(void*) noexcept override {}
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override {
    return allocate(bytes, what);
  }
  void release_pinned(void*) noexcept override {}
  MemoryUse memory_use() const override { return {}; }

 private:
  static constexpr std::size_t kArenaBytes = 256 << 10;

  void remember(const Op& op) {
    before_ = arena_;
    last_ = {op.name,
             op.on,
             op.bytes,
             op.flops,
             {op.reads.begin(), op.reads.end()},
             {op.writes.begin(), op.writes.end()},
             {}};
  }

  DeviceInfo info_;
  std::vector<std::byte> arena_, before_;
  std::size_t used_ = 0;
  Recorded last_;
};

}  // namespace sluice::test
