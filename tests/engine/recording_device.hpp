// A device that runs nothing and sees everything: it keeps a list of what was asked, knows by vector
// clocks which accesses are ordered, byte for byte, and what each byte of memory would hold.
#pragma once
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/device/device.hpp"

namespace sluice::test {

class RecordingDevice final : public IDevice {
 public:
  enum class Reach { never, always, random };  // what reached() answers
  enum class Lose { nothing, weights, lane };  // waits that are silently dropped
  struct Options {
    std::uint64_t memory_limit = 1ull << 40;
    Reach reach = Reach::never;
    Lose lose = Lose::nothing;
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
  std::vector<std::string> violations;  // accesses that are not ordered
  Reach reach;

  // True when, in the order of the streams, every byte of `range` was last copied from `source` on.
  bool holds(Range range, const void* source) const;
  std::uint64_t copied_bytes(std::string_view name) const;
  std::size_t blocks() const { return blocks_.size(); }

  const DeviceInfo& info() const override { return info_; }
  StreamId make_stream(Resource resource, const char* name) override;
  void enqueue(StreamId stream, const Op& op, const Body& body) override;
  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override;
  Event record(StreamId stream) override;
  void wait(StreamId stream, Event event, WaitFor why) override;
  void sync(Event event) override;
  bool reached(Event event) override;
  void host(const Op& op) override;
  std::uint64_t now_ns() override { return 0; }
  std::uint64_t stall_ns(StreamId) override { return 0; }
  void* allocate(std::uint64_t bytes, std::string_view what) override;
  void release(void* memory) noexcept override;
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override;
  void release_pinned(void* memory) noexcept override;
  MemoryUse memory_use() const override { return use_; }

 private:
  static constexpr std::size_t kLines = 40;
  using Clock = std::array<std::uint64_t, kLines>;
  struct Access {
    StreamId stream = kHostLine;
    std::uint64_t at = 0;
    const char* name = "nothing";
  };
  struct Cell {
    std::uint64_t end = 0;
    Access write;
    std::vector<Access> reads;  // the last of each stream
    std::uint64_t source = 0;   // address that its first byte was copied from; 0: none
  };
  using Cells = std::map<std::uint64_t, Cell>;  // by first byte

  void access(StreamId stream, const Op& op, std::uint64_t source);
  void check(const Access& before, const Clock& now, const Access& after, const char* how);
  Cells::iterator split(std::uint64_t at);
  void cover(Range range);
  void join(StreamId stream, Event event);
  void* place(std::uint64_t bytes);
  std::uint64_t unplace(void* memory);

  DeviceInfo info_;
  Lose lose_;
  std::mt19937_64 rng_;
  std::vector<Clock> now_;     // by stream; [0] the host's
  std::vector<Clock> events_;  // by position - 1
  std::vector<Resource> resources_;
  Cells cells_;
  std::map<std::uint64_t, std::uint64_t> blocks_;  // address to size
  std::uint64_t next_address_ = 1ull << 32;
  MemoryUse use_;
};

}  // namespace sluice::test
