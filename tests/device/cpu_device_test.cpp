#include "core/device/cpu_device.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/device/make_device.hpp"
#include "tests/catch.hpp"

using namespace sluice;

namespace {

// Holds a stream until the host lets it go.
struct Gate {
  std::atomic<bool> open{false};

  void close_on(IDevice& device, StreamId stream) {
    device.enqueue(stream, {.name = "gate"}, [this](NativeStream) {
      while (!open.load()) std::this_thread::yield();
    });
  }
};

void append(IDevice& device, StreamId stream, std::vector<int>& to, int value) {
  device.enqueue(stream, {.name = "append"}, [&to, value](NativeStream) { to.push_back(value); });
}

void fail(IDevice& device, StreamId stream) {
  device.enqueue(stream, {.name = "fail"},
                 [](NativeStream) { throw std::runtime_error("the body's own words"); });
}

}  // namespace

TEST_CASE("a stream runs its operations in order") {
  const auto device = make_cpu_device();
  const StreamId stream = device->make_stream(Resource::compute, "compute");
  std::vector<int> seen;
  for (int i = 0; i < 10000; ++i) append(*device, stream, seen, i);
  device->sync(device->record(stream));
  std::vector<int> expected(10000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
}

TEST_CASE("a wait orders work across streams") {
  const auto device = make_cpu_device();
  const StreamId first = device->make_stream(Resource::h2d, "first");
  const StreamId second = device->make_stream(Resource::compute, "second");
  Gate gate;
  std::vector<int> seen;
  gate.close_on(*device, first);
  append(*device, first, seen, 1);
  device->wait(second, device->record(first));
  append(*device, second, seen, 2);
  device->wait(first, device->record(second));
  append(*device, first, seen, 3);
  CHECK_FALSE(device->reached(device->record(second)));
  gate.open = true;
  device->sync(device->record(first));
  CHECK(seen == std::vector<int>{1, 2, 3});
}

TEST_CASE("an event is a value that stays reached") {
  const auto device = make_cpu_device();
  const StreamId a = device->make_stream(Resource::compute, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  Gate gate;
  std::vector<int> seen;
  append(*device, a, seen, 1);
  const Event early = device->record(a);
  device->sync(early);
  gate.close_on(*device, a);
  const Event late = device->record(a);

  // `a` is held, but what `early` stands for happened long ago.
  device->wait(b, early);
  append(*device, b, seen, 2);
  device->sync(device->record(b));
  CHECK(seen == std::vector<int>{1, 2});
  CHECK(device->reached(early));
  CHECK_FALSE(device->reached(late));
  gate.open = true;
  device->sync(late);
  CHECK(device->reached(late));
}

TEST_CASE("a signal stands for all of its stream") {
  const auto device = make_cpu_device();
  const StreamId stream = device->make_stream(Resource::compute, "compute");
  std::uint32_t word = 0;
  for (std::uint32_t value = 1; value <= 100; ++value) {
    device->enqueue(stream, {.name = "set"}, [at = &word, value](NativeStream) { *at = value; });
    device->await(stream, {&word, 1, value});
    CHECK(word == value);
  }
}

TEST_CASE("waits that have nothing to wait for") {
  const auto device = make_cpu_device();
  const StreamId stream = device->make_stream(Resource::compute, "compute");
  const Event nothing_yet = device->record(stream);
  CHECK(device->reached(nothing_yet));
  CHECK(device->reached(Event{}));
  device->sync(Event{});
  device->wait(stream, Event{});
  Gate gate;
  gate.close_on(*device, stream);
  device->wait(stream, device->record(stream));  // its own: order is given already
  gate.open = true;
  device->sync(device->record(stream));
}

TEST_CASE("streams that wait for each other in turn do not lose a wake-up") {
  const auto device = make_cpu_device();
  const StreamId a = device->make_stream(Resource::compute, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  std::vector<int> seen;
  for (int i = 0; i < 5000; ++i) {
    const StreamId on = i % 2 ? a : b, other = i % 2 ? b : a;
    device->wait(on, device->record(other));
    append(*device, on, seen, i);
    if (i % 97 == 0) device->sync(device->record(on));
  }
  device->sync(device->record(a));
  device->sync(device->record(b));
  std::vector<int> expected(5000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
}

TEST_CASE("an exception reaches the host and what was queued is skipped") {
  const auto device = make_cpu_device();
  const StreamId a = device->make_stream(Resource::compute, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  std::vector<int> seen;
  append(*device, a, seen, 1);
  fail(*device, a);
  append(*device, a, seen, 2);
  device->wait(b, device->record(a));
  append(*device, b, seen, 3);  // works on what `a` did not do
  CHECK_THROWS_WITH(device->sync(device->record(b)), "the body's own words");
  CHECK(seen == std::vector<int>{1});

  // Told once; the device goes on.
  append(*device, a, seen, 4);
  device->sync(device->record(a));
  append(*device, b, seen, 5);
  device->sync(device->record(b));
  CHECK(seen == std::vector<int>{1, 4, 5});
}

TEST_CASE("what was queued before the host knew is skipped even later") {
  const auto device = make_cpu_device();
  const StreamId a = device->make_stream(Resource::compute, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  Gate gate;
  std::vector<int> seen;
  gate.close_on(*device, b);
  append(*device, b, seen, 1);
  fail(*device, a);
  CHECK_THROWS_WITH(device->sync(device->record(a)), "the body's own words");
  append(*device, b, seen, 2);
  gate.open = true;
  device->sync(device->record(b));
  CHECK(seen == std::vector<int>{2});
}

TEST_CASE("any wait of the host tells of an exception") {
  const auto device = make_cpu_device();
  const StreamId a = device->make_stream(Resource::compute, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  fail(*device, a);
  while (!device->reached(device->record(a))) std::this_thread::yield();
  CHECK_THROWS_WITH(device->sync(device->record(b)), "the body's own words");
}

TEST_CASE("the first of several exceptions is told and the rest are not") {
  const auto device = make_cpu_device();
  const StreamId stream = device->make_stream(Resource::compute, "compute");
  for (int i = 0; i < 3; ++i)
    device->enqueue(stream, {}, [i](NativeStream) { throw std::runtime_error(std::to_string(i)); });
  CHECK_THROWS_WITH(device->sync(device->record(stream)), "0");
  device->sync(device->record(stream));
}

TEST_CASE("the end of a device drains its streams") {
  std::vector<int> seen;
  Gate gate;
  std::thread opener;
  {
    const auto device = make_cpu_device();
    const StreamId a = device->make_stream(Resource::compute, "a");
    const StreamId b = device->make_stream(Resource::compute, "b");
    gate.close_on(*device, b);
    device->wait(a, device->record(b));
    append(*device, a, seen, 1);
    device->wait(b, device->record(a));
    append(*device, b, seen, 2);
    fail(*device, b);  // nobody waits for it
    opener = std::thread([&] { gate.open = true; });
  }
  opener.join();
  CHECK(seen == std::vector<int>{1, 2});
}

TEST_CASE("copies carry the bytes in both directions") {
  for (const std::optional<double> link : {std::optional<double>{}, std::optional<double>{2.0}}) {
    const auto device = make_cpu_device({.link_gbps = link});
    const StreamId lane = device->make_stream(Resource::h2d, "lane");
    const StreamId back = device->make_stream(Resource::d2h, "back");
    constexpr std::uint64_t kBytes = 300'001;
    const Buffer from(*device, Buffer::Where::pinned, kBytes, "source");
    const Buffer on_device(*device, Buffer::Where::device, kBytes, "slot");
    const Buffer to(*device, Buffer::Where::pinned, kBytes, "result");
    for (std::uint64_t i = 0; i < kBytes; ++i)
      from.data()[i] = static_cast<std::byte>(i * 31 + i / 256);
    device->copy(lane, {.on = Resource::h2d}, on_device.data(), from.data(), kBytes);
    device->wait(back, device->record(lane));
    device->copy(back, {.on = Resource::d2h}, to.data(), on_device.data(), kBytes);
    device->sync(device->record(back));
    CHECK(std::equal(from.data(), from.data() + kBytes, to.data()));
  }
}

TEST_CASE("copies are never faster than the link and share it") {
  constexpr double kGbps = 1.0;
  constexpr std::uint64_t kBytes = 64 << 10;
  const auto device = make_cpu_device({.link_gbps = kGbps});
  const StreamId lanes[] = {device->make_stream(Resource::h2d, "lane 0"),
                            device->make_stream(Resource::h2d, "lane 1")};
  std::vector<std::byte> from(kBytes), to[2] = {from, from};
  const std::uint64_t begin = device->now_ns();
  for (int i = 0; i < 40; ++i)
    device->copy(lanes[i % 2], {.on = Resource::h2d}, to[i % 2].data(), from.data(), kBytes);
  for (const StreamId lane : lanes) device->sync(device->record(lane));
  // A nanosecond of rounding for each copy.
  CHECK(device->now_ns() - begin + 40 >= static_cast<std::uint64_t>(40 * kBytes / kGbps));
}

TEST_CASE("time at a wait is a stall only when it was for weights") {
  const auto device = make_cpu_device();
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  // Whether the stream reaches the wait before the gate opens is up to the scheduler: try until it
  // has.
  const auto hold = [&](WaitFor why) {
    Gate gate;
    gate.close_on(*device, lane);
    device->wait(compute, device->record(lane), why);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gate.open = true;
    device->sync(device->record(compute));
    device->sync(device->record(lane));
  };
  for (int i = 0; i < 5; ++i) hold(WaitFor::order);
  CHECK(device->stall_ns(compute) == 0);
  while (device->stall_ns(compute) == 0) hold(WaitFor::weights);
  CHECK(device->stall_ns(lane) == 0);
}

TEST_CASE("memory of the CPU device is aligned and limited") {
  const auto device = make_cpu_device({.memory_limit = 1 << 20});
  CHECK(device->info().memory_limit == 1 << 20);
  {
    const Buffer one(*device, Buffer::Where::device, 1000, "one");
    const Buffer two(*device, Buffer::Where::device, 1, "two");
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(two.data()) % 256 == 0);
    CHECK(device->memory_use().device_bytes == 1024 + 256);
    CHECK_THROWS_WITH(device->allocate(1 << 20, "the KV cache"),
                      "asked for 1048576 bytes for the KV cache: 1280 of 1048576 bytes of device "
                      "memory are in use");
    CHECK_THROWS_AS(device->allocate(1 << 20, "the KV cache"), MemoryLimitError);
  }
  CHECK(device->memory_use().device_bytes == 0);
  CHECK(device->memory_use().device_peak_bytes == 1280);
  const Buffer all(*device, Buffer::Where::device, 1 << 20, "all of it");
}

TEST_CASE("pinned memory is page-aligned and counted as asked") {
  const auto device = make_cpu_device();
  {
    const Buffer slab(*device, Buffer::Where::pinned, (5 << 20) + 3, "slab");
    CHECK(reinterpret_cast<std::uintptr_t>(slab.data()) % 4096 == 0);
    slab.data()[slab.bytes() - 1] = std::byte{7};
    CHECK(device->memory_use().pinned_bytes == (5 << 20) + 3);
    CHECK(device->memory_use().device_bytes == 0);
  }
  CHECK(device->memory_use().pinned_bytes == 0);
  CHECK(device->memory_use().pinned_peak_bytes == (5 << 20) + 3);
  CHECK_THROWS_AS(device->allocate_pinned(0, "nothing"), Error);
  CHECK_THROWS_AS(device->allocate_pinned(~std::uint64_t{0} / 2, "too much"), Error);
}

TEST_CASE("the CPU device knows its machine") {
  const auto device = make_device({});
  CHECK(device->info().kind == DeviceKind::cpu);
  CHECK_FALSE(device->info().name.empty());
  CHECK(device->info().memory_bytes > (std::uint64_t{64} << 20));
  CHECK(device->info().memory_limit == device->info().memory_bytes);
  CHECK(device->info().executes);
}

TEST_CASE("devices and options that cannot be are refused") {
  CHECK_THROWS_AS(make_device({.kind = DeviceKind::sim}), InputError);
  CHECK_THROWS_WITH(make_device({.kind = DeviceKind::sim}),
                    "device 'sim': it needs a machine to imitate");
  CHECK_THROWS_WITH(make_device({.kind = DeviceKind::sim, .link_gbps = 1.0}),
                    "device 'sim': a link's rate can be given for the device 'cpu' only");
  CHECK_THROWS_AS(make_device({.memory_limit = 0}), InputError);
  CHECK_THROWS_AS(make_device({.memory_limit = std::uint64_t{1} << 60}), InputError);
  for (const double rate : {0.0, -1.0, std::nan(""), HUGE_VAL})
    CHECK_THROWS_AS(make_device({.link_gbps = rate}), InputError);
}
