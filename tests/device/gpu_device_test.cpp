// The CUDA device: what the engine and the decoder rely on.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "core/device/make_device.hpp"
#include "tests/catch.hpp"
#include "tests/test_device.hpp"

namespace sluice::test {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

void copy(IDevice& device, StreamId stream, Resource on, void* to, const void* from,
          std::uint64_t bytes) {
  const std::array reads{range_of(from, bytes)}, writes{range_of(to, bytes)};
  device.copy(stream, {.name = "copy", .on = on, .bytes = bytes, .reads = reads, .writes = writes},
              to, from, bytes);
}

// Holds a stream of the resource `host` until the host lets it go.
struct Gate {
  std::atomic<bool> open{false};

  void close_on(IDevice& device, StreamId stream) {
    device.enqueue(stream, {.name = "gate", .on = Resource::host}, [this](NativeStream) {
      while (!open.load()) std::this_thread::yield();
    });
  }
};

TEST_CASE("copies on two lanes arrive where a third stream waits for them", "[gpu]") {
  const auto device = make_test_device();
  constexpr std::uint64_t kBytes = 8 * kMiB + 12;
  const StreamId lanes[] = {device->make_stream(Resource::h2d, "one"),
                            device->make_stream(Resource::h2d, "two")};
  const StreamId back = device->make_stream(Resource::d2h, "back");
  const Buffer from(*device, Buffer::Where::pinned, 2 * kBytes, "from");
  const Buffer on(*device, Buffer::Where::device, 2 * kBytes, "on the device");
  const Buffer to(*device, Buffer::Where::pinned, 2 * kBytes, "to");
  for (std::uint64_t i = 0; i < 2 * kBytes; ++i)
    from.data()[i] = static_cast<std::byte>(i * 31 >> 5);
  std::memset(to.data(), 0, to.bytes());
  for (int i = 0; i < 2; ++i) {
    copy(*device, lanes[i], Resource::h2d, on.data() + i * kBytes, from.data() + i * kBytes,
         kBytes);
    device->wait(back, device->record(lanes[i]));
  }
  copy(*device, back, Resource::d2h, to.data(), on.data(), 2 * kBytes);
  device->sync(device->record(back));
  CHECK(std::memcmp(to.data(), from.data(), to.bytes()) == 0);
}

TEST_CASE("operations of the host run in order, and other streams wait for them", "[gpu]") {
  const auto device = make_test_device();
  const StreamId host = device->make_stream(Resource::host, "host");
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const Buffer pinned(*device, Buffer::Where::pinned, 4, "a word");
  const Buffer word(*device, Buffer::Where::device, 4, "a word");
  const Buffer result(*device, Buffer::Where::pinned, 4, "a word");
  Gate gate;
  gate.close_on(*device, host);
  auto* const value = pinned.as<std::uint32_t>();
  *value = 0;
  for (std::uint32_t i = 1; i <= 5; ++i)
    device->enqueue(host, {.name = "add", .on = Resource::host},
                    [value, i](NativeStream) { *value = *value * 10 + i; });
  const Event added = device->record(host);
  device->wait(lane, added);
  copy(*device, lane, Resource::h2d, word.data(), value, 4);
  copy(*device, lane, Resource::d2h, result.data(), word.data(), 4);
  const Event copied = device->record(lane);
  CHECK_FALSE(device->reached(added));
  CHECK_FALSE(device->reached(copied));
  gate.open = true;
  device->sync(copied);
  CHECK(device->reached(added));
  CHECK(*result.as<std::uint32_t>() == 12345);
}

TEST_CASE("a signal is seen when it is set, and missed where its stream ends without it", "[gpu]") {
  const auto device = make_test_device();
  const StreamId host = device->make_stream(Resource::host, "host");
  const Buffer words(*device, Buffer::Where::pinned, 8, "words");
  auto* const word = words.as<std::uint32_t>();
  std::memset(word, 0, 8);
  for (std::uint32_t value = 1; value <= 20; ++value) {
    device->enqueue(host, {.name = "set", .on = Resource::host}, [word, value](NativeStream) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      word[1] = value + 1;
      std::atomic_ref(word[0]).store(value, std::memory_order_release);
    });
    device->await(host, {word, 1, value});
    CHECK(word[1] == value + 1);
  }
  CHECK_THROWS_AS(device->await(host, {word, 1, 99}), Error);
}

TEST_CASE("a wait for weights is counted as a stall and one for order is not", "[gpu]") {
  for (const WaitFor why : {WaitFor::weights, WaitFor::order}) {
    const auto device = make_test_device();
    const StreamId host = device->make_stream(Resource::host, "host");
    const StreamId compute = device->make_stream(Resource::compute, "compute");
    Gate gate;
    gate.close_on(*device, host);
    device->wait(compute, device->record(host), why);
    const Buffer word(*device, Buffer::Where::device, 4, "a word");
    const Buffer pinned(*device, Buffer::Where::pinned, 4, "a word");
    copy(*device, compute, Resource::h2d, word.data(), pinned.data(), 4);
    const Event done = device->record(compute);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open = true;
    device->sync(done);
    CAPTURE(device->stall_ns(compute));
    CHECK((device->stall_ns(compute) > 1'000'000) == (why == WaitFor::weights));
  }
}

TEST_CASE("events are values that stay reached while thousands of others pass", "[gpu]") {
  const auto device = make_test_device();
  const StreamId a = device->make_stream(Resource::h2d, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  const Buffer pinned(*device, Buffer::Where::pinned, 4096, "source");
  const Buffer on(*device, Buffer::Where::device, 4096, "target");
  CHECK(device->reached(Event{}));
  CHECK(device->reached(device->record(a)));  // nothing was enqueued
  std::vector<Event> events;
  for (int i = 0; i < 3000; ++i) {
    copy(*device, i % 2 ? a : b, Resource::h2d, on.data(), pinned.data(), 4096);
    events.push_back(device->record(i % 2 ? a : b));
    device->wait(i % 2 ? b : a, events.back());
    if (i % 500 == 0) device->wait(a, events[static_cast<std::size_t>(i) / 2]);
  }
  device->sync(events.back());
  device->sync(events[events.size() - 2]);
  for (const Event& event : events) REQUIRE(device->reached(event));
}

TEST_CASE("pinned memory is exact and counted", "[gpu]") {
  const auto device = make_test_device();
  {
    const Buffer odd(*device, Buffer::Where::pinned, 5 * kMiB + 3, "odd");
    CHECK(device->memory_use().pinned_bytes == 5 * kMiB + 3);
    CHECK(reinterpret_cast<std::uintptr_t>(odd.data()) % 4096 == 0);
  }
  CHECK(device->memory_use().pinned_bytes == 0);
  CHECK(device->memory_use().pinned_peak_bytes == 5 * kMiB + 3);
}

TEST_CASE("the memory limit bounds all that the process takes", "[gpu]") {
  const std::uint64_t beside = make_test_device()->memory_use().other_bytes;
  CHECK(beside > 0);
  const auto device = make_device({.kind = DeviceKind::cuda, .memory_limit = beside + 200 * kMiB});
  const std::uint64_t free = free_bytes(*device);
  CAPTURE(beside, free);
  CHECK(free <= 200 * kMiB);
  CHECK(free > 100 * kMiB);
  {
    const Buffer most(*device, Buffer::Where::device, free / 256 * 256, "the most");
    CHECK(free_bytes(*device) < 256);
    CHECK_THROWS_AS(Buffer(*device, Buffer::Where::device, 256, "more"), MemoryLimitError);
    const MemoryUse use = device->memory_use();
    CHECK(use.process_peak_bytes >= use.device_bytes);
    CHECK(use.process_peak_bytes <= device->info().memory_limit);
  }
  CHECK(device->memory_use().device_bytes == 0);
  CHECK(device->memory_use().device_peak_bytes == free / 256 * 256);
  CHECK(free_bytes(*device) == free);
  const auto too_small = make_device({.kind = DeviceKind::cuda, .memory_limit = kMiB});
  CHECK_THROWS_AS(Buffer(*too_small, Buffer::Where::device, 256, "any"), MemoryLimitError);
}

TEST_CASE("two devices in one process do not mix their streams", "[gpu]") {
  const auto one = make_test_device(), two = make_test_device();
  for (IDevice* device : {one.get(), two.get()}) {
    const StreamId stream = device->make_stream(Resource::compute, "compute");
    CHECK(stream == 1);
    const Buffer pinned(*device, Buffer::Where::pinned, 16, "source");
    const Buffer on(*device, Buffer::Where::device, 16, "target");
    std::memset(pinned.data(), 7, 16);
    copy(*device, stream, Resource::h2d, on.data(), pinned.data(), 16);
    std::memset(pinned.data(), 7, 16);
    copy(*device, stream, Resource::d2h, pinned.data(), on.data(), 16);
    device->sync(device->record(stream));
    CHECK(pinned.data()[15] == std::byte{7});
  }
}

TEST_CASE("the device keeps the times of copies, operations and waits for weights", "[gpu]") {
  const auto device = make_test_device();
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  device->keep_times(lane);
  device->keep_times(compute);
  const Buffer from(*device, Buffer::Where::pinned, 8 * kMiB, "from");
  const Buffer to(*device, Buffer::Where::device, 8 * kMiB, "to");
  constexpr std::size_t kLoads = 5;
  for (std::size_t i = 0; i < kLoads; ++i) {
    copy(*device, lane, Resource::h2d, to.data(), from.data(), from.bytes());
    device->wait(compute, device->record(lane), WaitFor::weights);
    device->enqueue(compute, {.name = "nothing"}, [](NativeStream) {});
    device->wait(lane, device->record(compute));
  }
  device->sync(device->record(compute));
  device->sync(device->record(lane));
  const std::vector<OpTimes> copies = device->take_times(lane), work = device->take_times(compute);
  REQUIRE(copies.size() == kLoads);
  REQUIRE(work.size() == 2 * kLoads);
  constexpr std::uint64_t kRounding = 1000;  // of event times, in ns
  std::uint64_t waited = 0;
  for (std::size_t i = 0; i < kLoads; ++i) {
    const OpTimes &wait = work[2 * i], &after = work[2 * i + 1];
    waited += wait.end_ns - wait.begin_ns;
    CHECK(copies[i].begin_ns <= copies[i].end_ns);
    CHECK(wait.begin_ns <= wait.end_ns);
    CHECK(copies[i].end_ns <= wait.end_ns + kRounding);
    CHECK(wait.end_ns <= after.begin_ns);
    CHECK(after.begin_ns <= after.end_ns);
  }
  CHECK(waited > 0);
  CHECK(waited <= device->stall_ns(compute) + kLoads * kRounding);
  CHECK(waited + kLoads * kRounding >= device->stall_ns(compute));
  CHECK(device->take_times(compute).empty());
}

}  // namespace
}  // namespace sluice::test
