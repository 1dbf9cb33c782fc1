#include "core/device/audit_device.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/device/device_decorator.hpp"
#include "core/device/shadow_memory.hpp"

namespace sluice {
namespace {

// How far each line of execution, the host's first, is known to have come.
using VectorClock = std::vector<std::uint64_t>;

void join(VectorClock& into, const VectorClock& other) {
  if (into.size() < other.size()) into.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

std::uint64_t component(const VectorClock& clock, StreamId stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

bool covers(const VectorClock& clock, const VectorClock& other) {
  for (StreamId i = 0; i < other.size(); ++i)
    if (component(clock, i) < other[i]) return false;
  return true;
}

class Audit final : public DeviceDecorator<AuditDevice> {
 public:
  explicit Audit(IDevice& below) : DeviceDecorator(below) { lines_.emplace_back().name = "host"; }

  const std::vector<Race>& races() const override { return races_; }

  StreamId make_stream(Resource resource, const char* name) override {
    const StreamId stream = below_.make_stream(resource, name);
    if (lines_.size() <= stream) lines_.resize(stream + std::size_t{1});
    lines_[stream].name = name;
    return stream;
  }

  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    perform(stream, op);
    below_.enqueue(stream, op, body);
  }

  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override {
    perform(stream, op);
    below_.copy(stream, op, to, from, bytes);
  }

  // Events are counted here: two records of a stream may be one place to the device below, with a
  // wait between them.
  Event record(StreamId stream) override {
    Line& line = lines_[stream];
    line.recorded.push_back({below_.record(stream), line.now});
    return {stream, line.forgotten + line.recorded.size()};
  }

  void wait(StreamId stream, Event event, WaitFor why) override {
    if (event.position == 0) return below_.wait(stream, event, why);
    const Recorded& then = at(event);
    join(lines_[stream].now, then.now);
    below_.wait(stream, then.event, why);
  }

  void sync(Event event) override {
    if (event.position == 0) return below_.sync(event);
    below_.sync(at(event).event);
    known_to_host(event);
  }

  // The signal is the last operation's: whoever has seen it has seen all that came before.
  void await(StreamId stream, const Signal& signal) override {
    const Event event = record(stream);
    below_.await(stream, signal);
    known_to_host(event);
  }

  // An event that the host has seen to be reached orders as much as one it waited for.
  bool reached(Event event) override {
    if (event.position == 0) return below_.reached(event);
    if (!below_.reached(at(event).event)) return false;
    known_to_host(event);
    return true;
  }

  void host(const Op& op) override {
    perform(kHostLine, op);
    below_.host(op);
  }

  void* allocate(std::uint64_t bytes, std::string_view what) override {
    void* memory = below_.allocate(bytes, what);
    sizes_[memory] = bytes;
    return memory;
  }
  void release(void* memory) noexcept override {
    freed(memory, "release of device memory");
    below_.release(memory);
  }
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override {
    void* memory = below_.allocate_pinned(bytes, what);
    sizes_[memory] = bytes;
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    freed(memory, "release of pinned memory");
    below_.release_pinned(memory);
  }

 private:
  struct Recorded {
    Event event;  // of the device below
    VectorClock now;
  };
  struct Line {
    const char* name = "";
    VectorClock now;
    std::uint64_t forgotten = 0;    // how many events lie before those in `recorded`
    std::deque<Recorded> recorded;  // from the last one on that the host knows to be reached
  };

  // In place of a forgotten event, the one after it that the host knows to be reached.
  const Recorded& at(Event event) const {
    const Line& line = lines_.at(event.stream);
    if (event.position > line.forgotten + line.recorded.size())
      throw Error("event {} of stream '{}' is waited for but was never recorded", event.position,
                  line.name);
    return line.recorded[std::max(event.position, line.forgotten + 1) - line.forgotten - 1];
  }

  // Whatever is enqueued from now on comes after it, so the events before tell nothing more.
  void known_to_host(Event event) {
    VectorClock& host = lines_[kHostLine].now;
    join(host, at(event).now);
    for (Line& line : lines_)
      for (; line.recorded.size() > 1 && covers(host, line.recorded[1].now); ++line.forgotten)
        line.recorded.pop_front();
  }

  // Everything that the host did before comes before what it enqueues now.
  void perform(StreamId stream, const Op& op) {
    VectorClock& now = lines_[stream].now;
    join(now, lines_[kHostLine].now);
    if (now.size() <= stream) now.resize(stream + std::size_t{1}, 0);
    const Access access{stream, ++now[stream], op.name, op.unit};
    for (const Range& range : op.reads)
      memory_.for_each(range, [&](Range piece, Shadow& shadow) {
        check(Race::Kind::read_after_write, shadow.write, access, now, piece);
        const auto same = std::ranges::find(shadow.reads, stream, &Access::stream);
        same == shadow.reads.end() ? shadow.reads.push_back(access) : void(*same = access);
      });
    for (const Range& range : op.writes)
      memory_.for_each(range, [&](Range piece, Shadow& shadow) {
        check(Race::Kind::write_after_write, shadow.write, access, now, piece);
        for (const Access& read : shadow.reads)
          if (read.stream != stream || read.at != access.at)
            check(Race::Kind::write_after_read, read, access, now, piece);
        shadow.write = access;
        shadow.reads.clear();
      });
  }

  void freed(void* memory, const char* what) noexcept {
    const auto size = sizes_.find(memory);
    if (size == sizes_.end()) return;
    const Range range = range_of(memory, size->second);
    const VectorClock& now = lines_[kHostLine].now;
    const Access release{kHostLine, component(now, kHostLine), what, kNoUnit};
    memory_.for_each(range, [&](Range piece, Shadow& shadow) {
      check(Race::Kind::freed, shadow.write, release, now, piece);
      for (const Access& read : shadow.reads) check(Race::Kind::freed, read, release, now, piece);
    });
    memory_.forget(range);
    sizes_.erase(size);
  }

  void check(Race::Kind kind, const Access& earlier, const Access& later, const VectorClock& now,
             Range range) {
    if (earlier.at <= component(now, earlier.stream)) return;
    if (!seen_.emplace(kind, earlier.name, later.name).second) return;
    races_.push_back({kind, named(earlier), named(later), range});
  }

  std::string named(const Access& access) const {
    const std::string unit =
        access.unit == kNoUnit ? std::string() : fmt::format(" of unit {}", access.unit);
    return fmt::format("{}{} on '{}'", access.name, unit, lines_[access.stream].name);
  }

  std::vector<Line> lines_;  // index: StreamId
  ShadowMemory memory_;
  std::unordered_map<void*, std::uint64_t> sizes_;
  std::set<std::tuple<Race::Kind, std::string, std::string>> seen_;
  std::vector<Race> races_;
};

}  // namespace

std::string Race::describe() const {
  const char* what = kind == Kind::read_after_write    ? "read after write"
                     : kind == Kind::write_after_read  ? "write after read"
                     : kind == Kind::write_after_write ? "write after write"
                                                       : "freed while in use";
  return fmt::format("{}: nothing orders {} after {} ({} bytes at {:#x})", what, later, earlier,
                     range.size, range.begin);
}

std::unique_ptr<AuditDevice> make_audit_device(IDevice& below) {
  return std::make_unique<Audit>(below);
}

}  // namespace sluice
