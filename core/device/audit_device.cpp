#include "core/device/audit_device.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/device/device_decorator.hpp"
#include "core/device/shadow_memory.hpp"

namespace sluice {
namespace {

// How far each line of execution, the host's first, is known to have come.
using Clock = std::vector<std::uint64_t>;

void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

std::uint64_t component(const Clock& clock, StreamId stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

class Audit final : public DeviceDecorator<AuditDevice> {
 public:
  explicit Audit(IDevice& below) : DeviceDecorator(below) {
    lines_.push_back({.name = "host", .now = {}, .recorded = {}});
  }

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

  Event record(StreamId stream) override {
    const Event event = below_.record(stream);
    lines_[stream].recorded[event.position] = lines_[stream].now;
    return event;
  }

  void wait(StreamId stream, Event event, WaitFor why) override {
    if (const Clock* then = at(event)) join(lines_[stream].now, *then);
    below_.wait(stream, event, why);
  }

  void sync(Event event) override {
    below_.sync(event);
    if (const Clock* then = at(event)) join(lines_[kHostLine].now, *then);
  }

  // An event that the host has seen to be reached orders as much as one it waited for.
  bool reached(Event event) override {
    if (!below_.reached(event)) return false;
    if (const Clock* then = at(event)) join(lines_[kHostLine].now, *then);
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
  struct Line {
    const char* name = "";
    Clock now;
    std::unordered_map<std::uint64_t, Clock> recorded;  // by position
  };

  const Clock* at(Event event) const {
    if (event.position == 0 || event.stream == kHostLine) return nullptr;
    const auto& recorded = lines_[event.stream].recorded;
    const auto found = recorded.find(event.position);
    if (found == recorded.end())
      throw Error("an event at position {} of stream '{}' is waited for but was never recorded",
                  event.position, lines_[event.stream].name);
    return &found->second;
  }

  // Everything that the host did before comes before what it enqueues now.
  void perform(StreamId stream, const Op& op) {
    Clock& now = lines_[stream].now;
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
    const Clock& now = lines_[kHostLine].now;
    const Access release{kHostLine, component(now, kHostLine), what, kNoUnit};
    memory_.for_each(range, [&](Range piece, Shadow& shadow) {
      check(Race::Kind::freed, shadow.write, release, now, piece);
      for (const Access& read : shadow.reads) check(Race::Kind::freed, read, release, now, piece);
    });
    memory_.forget(range);
    sizes_.erase(size);
  }

  void check(Race::Kind kind, const Access& earlier, const Access& later, const Clock& now,
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
