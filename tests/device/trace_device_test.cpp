#include "core/device/trace_device.hpp"

#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#include "tests/catch.hpp"
#include "tests/device/trace_file.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

const Body kNothing = [](NativeStream) {};

Op load(UnitId unit, std::uint64_t bytes) {
  return {.name = "load", .unit = unit, .on = Resource::h2d, .bytes = bytes};
}

bool same(const TraceSpan& span, std::uint64_t track, const std::string& name,
          std::uint64_t begin_ns, std::uint64_t end_ns) {
  INFO(span.track << ' ' << span.name << ' ' << span.begin_ns << ' ' << span.end_ns);
  CHECK(span.track == track);
  CHECK(span.name == name);
  CHECK(span.begin_ns == begin_ns);
  CHECK(span.end_ns == end_ns);
  return span.name == name;
}

}  // namespace

// By the toy machine: an enqueueing takes the host 1 ns, an event 1, a copy 5 and 1 a byte, an
// operation 10 and 1 for 4 bytes; the host wakes up 3 after what it waited for.
TEST_CASE("a trace tells simulated times to the nanosecond") {
  const ScratchDir dir;
  const auto sim = make_sim_device(toy_machine());
  sim->sync(sim->record(sim->make_stream(Resource::compute, "not seen")));
  const std::uint64_t zero = sim->now_ns();
  const auto device = make_trace_device(*sim, dir.path() / "t.json", {"embedding", "mlp 7"});
  const StreamId lane = device->make_stream(Resource::h2d, "copy");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  REQUIRE(lane == 2);
  REQUIRE(compute == 3);

  device->copy(lane, load(1, 100), nullptr, nullptr, 100);                          // host at 1
  device->wait(compute, device->record(lane), WaitFor::weights);                    // host at 3
  device->enqueue(compute, {.name = "linear", .bytes = 40, .flops = 7}, kNothing);  // host at 4
  device->sync(device->record(compute));                                            // from 5
  CHECK(sim->stall_ns(compute) == 103);
  CHECK(sim->now_ns() - zero == 129);
  device->finish();

  const TraceFile trace(dir.path() / "t.json");
  CHECK(trace.tracks == std::vector<std::string>{"host", "", "copy", "compute"});
  REQUIRE(trace.spans.size() == 4);
  CHECK(same(trace.spans[0], 0, "wait", 5, 129));
  CHECK(same(trace.spans[1], 2, "load", 1, 106));
  CHECK(trace.spans[1].unit == "mlp 7");
  CHECK(trace.spans[1].bytes == 100);
  CHECK(trace.spans[1].category == "h2d");
  CHECK(same(trace.spans[2], 3, "wait for weights", 3, 106));
  CHECK(same(trace.spans[3], 3, "linear", 106, 126));
  CHECK(trace.spans[3].flops == 7);
}

TEST_CASE("tracing changes no simulated time") {
  const ScratchDir dir;
  const auto run = [](IDevice& device) {
    const StreamId lane = device.make_stream(Resource::h2d, "copy");
    const StreamId compute = device.make_stream(Resource::compute, "compute");
    for (int i = 0; i < 50; ++i) {
      device.copy(lane, load(kNoUnit, 100), nullptr, nullptr, 100);
      device.wait(compute, device.record(lane), WaitFor::weights);
      device.enqueue(compute, {.name = "linear", .bytes = 300}, kNothing);
      if (i % 7 == 0) device.sync(device.record(compute));
    }
    device.sync(device.record(compute));
    return device.now_ns();
  };
  const auto plain = make_sim_device(toy_machine()), below = make_sim_device(toy_machine());
  const auto traced = make_trace_device(*below, dir.path() / "t.json", {});
  CHECK(run(*traced) == run(*plain));
}

TEST_CASE("a trace of threads has every operation, in order, and the stalls that were counted") {
  const ScratchDir dir;
  const auto cpu = make_cpu_device({.memory_limit = {}, .link_gbps = 0.5});
  const auto device = make_trace_device(*cpu, dir.path() / "t.json", {});
  const StreamId lane = device->make_stream(Resource::h2d, "copy");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  const StreamId idle = device->make_stream(Resource::d2h, "idle");
  constexpr std::uint64_t kBytes = 50'000;
  const Buffer from(*device, Buffer::Where::pinned, kBytes, "from");
  const Buffer to(*device, Buffer::Where::device, kBytes, "to");
  device->begin_section("first");
  for (int i = 0; i < 20; ++i) {
    device->copy(lane, load(kNoUnit, kBytes), to.data(), from.data(), kBytes);
    const Event copied = device->record(lane);
    if (i % 3 == 0) device->sync(copied);  // then the stream has nothing to wait for
    device->wait(compute, copied, WaitFor::weights);
    device->enqueue(compute, {.name = "read"}, kNothing);
    device->wait(lane, device->record(compute));
  }
  device->begin_section("second");
  device->enqueue(idle, {.name = "read"}, kNothing);
  device->finish();

  const TraceFile trace(dir.path() / "t.json");
  CHECK(trace.tracks == std::vector<std::string>{"host", "copy", "compute", "idle"});
  const TraceSpan* first = trace.section("first");
  const TraceSpan* second = trace.section("second");
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->end_ns <= second->begin_ns);
  CHECK(trace.bytes("load", *first) == 20 * kBytes);
  CHECK(trace.bytes("load", *second) == 0);
  CHECK(cpu->stall_ns(compute) > 0);
  CHECK(trace.stall_ns(*first) == cpu->stall_ns(compute));
  const auto count = [&](const char* name, std::uint64_t track) {
    return std::count_if(trace.spans.begin(), trace.spans.end(), [&](const TraceSpan& span) {
      return span.name == name && span.track == track;
    });
  };
  CHECK(count("load", lane) == 20);
  CHECK(count("read", compute) == 20);
  CHECK(count("read", idle) == 1);
}

TEST_CASE("a trace that cannot be written is refused and one that is given up is whole") {
  const ScratchDir dir;
  const auto cpu = make_cpu_device();
  CHECK_THROWS_AS(make_trace_device(*cpu, dir.path() / "none" / "t.json", {}), InputError);
  {
    const auto device = make_trace_device(*cpu, dir.path() / "t.json", {});
    device->enqueue(device->make_stream(Resource::compute, "\"quoted\\"), {.name = "read"},
                    kNothing);
  }
  CHECK(TraceFile(dir.path() / "t.json").spans.size() == 1);
}

}  // namespace sluice::test
