#include "core/device/sim_device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/device/memory_book.hpp"
#include "core/device/throttled_link.hpp"

namespace sluice {
namespace {

constexpr std::size_t kResources = 4;
// Addresses that no real memory of this process has.
constexpr std::uint64_t kFirstAddress = 1ull << 52;
std::atomic<std::uint64_t> next_address{kFirstAddress};

void* take_addresses(std::uint64_t bytes) {
  return reinterpret_cast<void*>(next_address.fetch_add((bytes + 4095) / 4096 * 4096));
}

DeviceInfo info_for(const Machine& machine, std::optional<std::uint64_t> limit) {
  if (limit == 0) throw InputError("the memory limit is 0 bytes; it must be at least 1");
  if (limit > machine.device_memory_bytes)
    throw InputError("the memory limit of {} bytes is more than the {} bytes that {} has", *limit,
                     machine.device_memory_bytes, machine.name);
  return {.kind = DeviceKind::sim,
          .name = machine.name,
          .memory_bytes = machine.device_memory_bytes,
          .memory_limit = limit.value_or(machine.device_memory_bytes),
          .executes = false};
}

// One FIFO, or what it works at: an operation that began at `begin_ns` and had `left_ns` of its cost
// before it at `seen_ns`, of which `pace` is done in a nanosecond. One that is done with that before
// `not_before_ns` rests until then.
struct Server {
  bool works = false, rests = false;
  std::uint64_t begin_ns = 0, seen_ns = 0, not_before_ns = 0, free_ns = 0, passed_ns = 0;
  double left_ns = 0, pace = 1;

  void begin(std::uint64_t at_ns, std::uint64_t cost_ns, std::uint64_t earliest_end_ns) {
    works = true;
    rests = false;
    begin_ns = seen_ns = at_ns;
    left_ns = static_cast<double>(cost_ns);
    not_before_ns = earliest_end_ns;
  }
  std::uint64_t done_ns() const {
    return seen_ns + static_cast<std::uint64_t>(std::llround(left_ns / pace));
  }
  // When it rests or, where it needs not, ends.
  std::uint64_t next_ns() const { return rests ? not_before_ns : done_ns(); }
  bool ends_next() const { return rests || done_ns() >= not_before_ns; }
  void go_on(std::uint64_t at_ns, double new_pace) {
    left_ns = std::max(0.0, left_ns - pace * static_cast<double>(at_ns - seen_ns));
    seen_ns = at_ns;
    pace = new_pace;
  }
  void end(std::uint64_t at_ns) {
    free_ns = at_ns;
    passed_ns += free_ns - begin_ns;
    works = false;
  }
  bool active() const { return works && !rests; }
  std::uint64_t busy_until(std::uint64_t now_ns) const {
    return passed_ns + (works ? now_ns - begin_ns : 0);
  }
};

struct Item {
  std::uint64_t issued_ns = 0;  // of an operation: when the host enqueued it
  std::uint64_t cost_ns = 0;
  std::uint64_t link_bytes = 0;  // of a copy over a link
  Event event;  // of a wait: what for; its stream is the host's line in an operation
  Resource on = Resource::compute;
  WaitFor why = WaitFor::order;
};

struct Stream {
  std::deque<Item> queue;
  std::uint64_t posted = 0;              // operations and waits enqueued
  std::vector<std::uint64_t> finish_ns;  // of each that is done, in order
  std::uint64_t ready_ns = 0;            // when what it has run and waited for is done
  std::uint64_t gate_ns = 0;             // ... not counting the copies since it last did else
  std::uint64_t link_end_ns = 0;         // until when its last copy has the link; 0: did else since
  bool runs = false;                     // an operation, on `last_on`
  Resource last_on = Resource::compute;
  std::uint64_t stall_ns = 0;
  bool keeps_times = false;
  std::vector<OpTimes> times;

  void keep(const OpTimes& one) {
    if (keeps_times) times.push_back(one);
  }
  std::uint64_t done() const { return finish_ns.size(); }
};

constexpr bool is_copy(Resource on) { return on == Resource::h2d || on == Resource::d2h; }

class Sim final : public SimDevice {
 public:
  Sim(const Machine& machine, std::optional<std::uint64_t> limit)
      : machine_(machine), info_(info_for(machine, limit)), memory_(info_.memory_limit) {
    if (machine.link_limit_gbps == 0) return;
    for (auto& link : limits_) link.emplace(machine.link_limit_gbps);
  }

  const DeviceInfo& info() const override { return info_; }

  StreamId make_stream(Resource, const char*) override {
    streams_.emplace_back();
    return static_cast<StreamId>(streams_.size());
  }

  void enqueue(StreamId stream, const Op& op, const Body&) override {
    post(stream, op.on, kernel_ns(op));
  }
  void copy(StreamId stream, const Op& op, void*, const void*, std::uint64_t bytes) override {
    const RateCurve& link = op.on == Resource::d2h ? machine_.d2h : machine_.h2d;
    const double ns = op.on == Resource::compute
                          ? static_cast<double>(2 * bytes) / machine_.memory_gbps
                          : link.ns(bytes);
    post(stream, op.on, machine_.copy_ns + static_cast<std::uint64_t>(std::llround(ns)),
         is_copy(op.on) ? bytes : 0);
  }

  Event record(StreamId stream) override {
    works(machine_.event_ns);
    return {stream, at(stream).posted};
  }
  void wait(StreamId stream, Event event, WaitFor why) override {
    if (event.position == 0 || event.stream == stream) return;
    works(machine_.event_ns);
    Stream& s = at(stream);
    s.queue.push_back({.issued_ns = host_ns_,
                       .cost_ns = 0,
                       .link_bytes = 0,
                       .event = event,
                       .on = Resource::compute,
                       .why = why});
    ++s.posted;
  }

  void sync(Event event) override {
    if (event.position == 0) return;
    run_until(event);
    host_ns_ = std::max(host_ns_, finish(event));
    works(machine_.sync_ns);
  }
  bool reached(Event event) override {
    if (event.position == 0) return true;
    run_ready_before(host_ns_);
    return at(event.stream).done() >= event.position && finish(event) <= host_ns_;
  }
  void host(const Op&) override {}

  std::uint64_t now_ns() override { return host_ns_; }
  std::uint64_t stall_ns(StreamId stream) override {
    run_ready_before(host_ns_);
    return at(stream).stall_ns;
  }
  void keep_times(StreamId stream) override { at(stream).keeps_times = true; }
  std::vector<OpTimes> take_times(StreamId stream) override {
    run_ready_before(host_ns_);
    return std::exchange(at(stream).times, {});
  }
  BusyTimes busy() override {
    run_ready_before(host_ns_);
    const auto of = [&](Resource r) { return server(r).busy_until(host_ns_); };
    return {of(Resource::h2d), of(Resource::d2h), of(Resource::compute), of(Resource::host),
            line_ns_};
  }

  void* allocate(std::uint64_t bytes, std::string_view what) override {
    const std::uint64_t counted = memory_.admit(bytes, what);
    void* memory = take_addresses(counted);
    memory_.add_device(memory, counted);
    return memory;
  }
  void release(void* memory) noexcept override {
    if (memory) memory_.remove_device(memory);
  }
  void* allocate_pinned(std::uint64_t bytes, std::string_view) override {
    void* memory = take_addresses(bytes);
    memory_.add_pinned(memory, bytes);
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    if (memory) memory_.remove_pinned(memory);
  }
  MemoryUse memory_use() const override { return memory_.use(); }

 private:
  Stream& at(StreamId stream) { return streams_.at(stream - std::size_t{1}); }
  Server& server(Resource r) { return servers_[static_cast<std::size_t>(r)]; }
  std::uint64_t finish(Event event) { return at(event.stream).finish_ns[event.position - 1]; }

  std::uint64_t kernel_ns(const Op& op) const {
    const double moving =
        static_cast<double>(op.bytes) /
        (op.on == Resource::host ? machine_.host_read_gbps : machine_.memory_gbps);
    const double computing = static_cast<double>(op.flops) / (machine_.matrix_tflops * 1e3);
    return op.parts * machine_.op_ns +
           static_cast<std::uint64_t>(std::llround(std::max(moving, computing)));
  }

  void works(std::uint64_t ns) {
    host_ns_ += ns;
    line_ns_ += ns;
  }

  void post(StreamId stream, Resource on, std::uint64_t cost_ns, std::uint64_t link_bytes = 0) {
    works(machine_.enqueue_ns);
    Stream& s = at(stream);
    s.queue.push_back({.issued_ns = host_ns_,
                       .cost_ns = cost_ns,
                       .link_bytes = link_bytes,
                       .event = {},
                       .on = on,
                       .why = WaitFor::order});
    ++s.posted;
  }

  // Passes the waits at the head of a queue whose events have happened; true when an operation is
  // at its head then. `due` is when that one takes its place in the queue of its resource: a copy
  // behind a copy of its own stream stands there at once, which is why nothing overtakes it.
  bool settle(Stream& s, std::uint64_t& due) {
    while (!s.runs && !s.queue.empty()) {
      const Item& head = s.queue.front();
      if (head.event.stream == kHostLine) {
        const bool follows = head.on == s.last_on && is_copy(head.on);
        due = std::max(follows ? s.gate_ns : s.ready_ns, head.issued_ns);
        return true;
      }
      if (at(head.event.stream).done() < head.event.position) return false;
      const std::uint64_t from = std::max(s.ready_ns, head.issued_ns);
      const std::uint64_t until = finish(head.event);
      s.ready_ns = std::max(from, until);
      if (until > from) s.link_end_ns = 0;
      s.gate_ns = std::max(s.gate_ns, until);
      s.finish_ns.push_back(s.ready_ns);
      if (head.why == WaitFor::weights) {
        s.stall_ns += s.ready_ns - from;
        s.keep({from, s.ready_ns});
      }
      s.queue.pop_front();
    }
    return false;
  }

  // What happens next: a stream's operation ends or rests, or the head of its queue begins.
  struct Next {
    Stream* stream = nullptr;
    std::uint64_t at_ns = 0, due_ns = 0;

    // Ends before beginnings, and those in the order in which they became due; the earlier stream
    // among equals.
    bool before(const Next& other) const {
      return std::tuple(at_ns, !stream->runs, due_ns) <
             std::tuple(other.at_ns, !other.stream->runs, other.due_ns);
    }
  };

  // No stream: nothing can happen. `passed`: a stream went past a wait.
  Next look(bool& passed) {
    for (bool settled = false; !settled;) {
      Next next;
      settled = true;
      for (Stream& s : streams_) {
        std::uint64_t due = 0;
        const std::size_t before = s.queue.size();
        const bool ready = settle(s, due);
        const bool shorter = s.queue.size() != before;
        settled = settled && !shorter;
        passed = passed || shorter;
        Next one{.stream = &s};
        if (s.runs) {
          one.at_ns = server(s.last_on).next_ns();
        } else if (ready && !server(s.queue.front().on).works) {
          one.at_ns = std::max({due, s.ready_ns, server(s.queue.front().on).free_ns});
          one.due_ns = due;
        } else {
          continue;
        }
        if (!next.stream || one.before(next)) next = one;
      }
      if (settled) return next;
    }
    return {};
  }

  // Lets the next thing happen unless that is after `limit_ns`. False when there was none and no wait
  // to pass.
  bool step(std::uint64_t limit_ns) {
    bool passed = false;
    const Next next = look(passed);
    if (passed)
      return true;  // perhaps what the host waits for: it goes on before anything later happens
    if (!next.stream || next.at_ns > limit_ns) return false;
    Stream& s = *next.stream;
    if (!s.runs)
      begin(s, next.at_ns);
    else if (server(s.last_on).ends_next())
      end(s, next.at_ns);
    else
      server(s.last_on).rests = true;
    set_paces(next.at_ns);
    return true;
  }

  void begin(Stream& s, std::uint64_t at_ns) {
    const Item& item = s.queue.front();
    s.runs = true;
    s.last_on = item.on;
    server(item.on).begin(at_ns, item.cost_ns, reserve(s, item, at_ns));
  }

  void end(Stream& s, std::uint64_t at_ns) {
    Server& on = server(s.last_on);
    on.end(at_ns);
    s.queue.pop_front();
    s.runs = false;
    s.ready_ns = at_ns;
    if (!is_copy(s.last_on)) s.gate_ns = at_ns;
    s.finish_ns.push_back(at_ns);
    s.keep({on.begin_ns, at_ns});
  }

  // When a copy may end at the earliest. As on the CPU device, one that was queued before the last one
  // had the link follows it there, however late that one's bytes were copied.
  std::uint64_t reserve(Stream& s, const Item& item, std::uint64_t at_ns) {
    if (item.link_bytes == 0 || !limits_[0]) {
      s.link_end_ns = 0;
      return 0;
    }
    const bool follows = s.link_end_ns != 0 && item.issued_ns <= s.link_end_ns;
    s.link_end_ns = limits_[item.on == Resource::d2h]->reserve(follows ? s.link_end_ns : at_ns,
                                                               item.link_bytes);
    return s.link_end_ns;
  }

  // Kernels and copies to the device are in each other's way where they share cores or memory.
  void set_paces(std::uint64_t at_ns) {
    Server &link = server(Resource::h2d), &compute = server(Resource::compute);
    const bool both = link.active() && compute.active();
    if (link.works) link.go_on(at_ns, both ? machine_.h2d_beside_compute : 1);
    if (compute.works) compute.go_on(at_ns, both ? machine_.compute_beside_h2d : 1);
  }

  void run_until(Event event) {
    while (at(event.stream).done() < event.position)
      if (!step(~std::uint64_t{0}))
        throw Error("simulated streams wait for each other: nothing can run, yet the host waits");
  }
  void run_ready_before(std::uint64_t ns) {
    while (step(ns)) {
    }
  }

  const Machine machine_;
  const DeviceInfo info_;
  MemoryBook memory_;
  std::vector<Stream> streams_;
  std::uint64_t host_ns_ = 0, line_ns_ = 0;
  std::array<Server, kResources> servers_;
  std::array<std::optional<ThrottledLink>, 2> limits_;  // to the device and back
};

}  // namespace

std::unique_ptr<SimDevice> make_sim_device(const Machine& machine,
                                           std::optional<std::uint64_t> memory_limit) {
  return std::make_unique<Sim>(machine, memory_limit);
}

}  // namespace sluice
