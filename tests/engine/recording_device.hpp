// A device that runs nothing: it keeps a list of what was asked, and knows where each byte of memory
// would have been copied from.
#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/device/device.hpp"

namespace sluice::test {

class RecordingDevice final : public IDevice {
 public:
  enum class Reach { never, always, random };  // what reached() answers
  struct Options {
    std::uint64_t memory_limit = 1ull << 40;
    Reach reach = Reach::never;
    std::uint64_t seed = 1;
  };
  struct Call {
    std::string what;  // the op's name, or "wait", "wait for weights", "sync"
    StreamId stream = kHostLine;
    UnitId unit = kNoUnit;
    std::uint64_t bytes = 0;
  };

  RecordingDevice() : RecordingDevice(Options{}) {}
  explicit RecordingDevice(const Options& options);

  std::vector<Call> calls;
  Reach reach;

  // True when, in the order of the calls, every byte of `range` was last copied from `source` on.
  bool holds(Range range, const void* source) const;
  std::uint64_t copied_bytes(std::string_view name) const;

  const DeviceInfo& info() const override { return info_; }
  StreamId make_stream(Resource, const char*) override { return ++streams_; }
  void enqueue(StreamId stream, const Op& op, const Body& body) override;
  // Throws Error when `op` declares other bytes than are copied.
  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override;
  Event record(StreamId stream) override { return {stream, ++events_}; }
  void wait(StreamId stream, Event event, WaitFor why) override;
  void sync(Event event) override;
  bool reached(Event event) override;
  void host(const Op& op) override;
  std::uint64_t now_ns() override { return 0; }
  std::uint64_t stall_ns(StreamId) override { return 0; }
  void keep_times(StreamId) override {}
  std::vector<OpTimes> take_times(StreamId) override { return {}; }
  void* allocate(std::uint64_t bytes, std::string_view what) override;
  void release(void* memory) noexcept override;
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override;
  void release_pinned(void* memory) noexcept override;
  MemoryUse memory_use() const override { return use_; }

 private:
  struct Piece {
    std::uint64_t end = 0;
    std::uint64_t source = 0;  // address that its first byte was copied from
  };

  void take(StreamId stream, const Op& op);
  void forget(Range range);
  void* place(std::uint64_t bytes);
  std::uint64_t unplace(void* memory);

  DeviceInfo info_;
  std::mt19937_64 rng_;
  StreamId streams_ = 0;
  std::uint64_t events_ = 0;
  std::map<std::uint64_t, Piece> copied_;          // by first byte
  std::map<std::uint64_t, std::uint64_t> blocks_;  // address to size
  std::uint64_t next_address_ = 1ull << 32;
  MemoryUse use_;
};

}  // namespace sluice::test
