#include "core/device/audit_device.hpp"

#include "core/device/cpu_device.hpp"
#include "tests/catch.hpp"

using namespace sluice;

namespace {

const Body kNoWork = [](NativeStream) {};

struct Rig {
  std::unique_ptr<IDevice> below = make_cpu_device();
  std::unique_ptr<AuditDevice> device = make_audit_device(*below);
  StreamId lane = device->make_stream(Resource::h2d, "lane");
  StreamId compute = device->make_stream(Resource::compute, "compute");

  void write(StreamId stream, Range range, const char* name = "write") {
    device->enqueue(stream, op(name, {}, {&range, 1}), kNoWork);
  }
  void read(StreamId stream, Range range, const char* name = "read") {
    device->enqueue(stream, op(name, {&range, 1}, {}), kNoWork);
  }
  static Op op(const char* name, std::span<const Range> reads, std::span<const Range> writes) {
    return {.name = name,
            .unit = kNoUnit,
            .on = Resource::compute,
            .bytes = 0,
            .flops = 0,
            .reads = reads,
            .writes = writes};
  }
  std::size_t count(Race::Kind kind) const {
    std::size_t n = 0;
    for (const Race& race : device->races()) n += race.kind == kind;
    return n;
  }
};

constexpr Range kSlot{0x1000, 0x100};

}  // namespace

TEST_CASE("a read that waits for the write it needs is no race") {
  Rig rig;
  rig.write(rig.lane, kSlot);
  rig.device->wait(rig.compute, rig.device->record(rig.lane));
  rig.read(rig.compute, kSlot);
  CHECK(rig.device->races().empty());
}

TEST_CASE("each kind of missing edge is found whatever the timing") {
  Rig rig;
  rig.write(rig.lane, kSlot, "copy");
  rig.device->sync(rig.device->record(rig.lane));
  SECTION("read after write") {
    rig.write(rig.lane, kSlot, "copy again");
    rig.read(rig.compute, kSlot, "linear");
    REQUIRE(rig.count(Race::Kind::read_after_write) == 1);
    const std::string text = rig.device->races().front().describe();
    CHECK(text.find("linear on 'compute' after copy again on 'lane'") != std::string::npos);
  }
  SECTION("write after read") {
    rig.read(rig.compute, kSlot);
    rig.write(rig.lane, kSlot);
    CHECK(rig.count(Race::Kind::write_after_read) == 1);
    CHECK(rig.count(Race::Kind::write_after_write) == 0);
  }
  SECTION("write after write") {
    rig.write(rig.compute, kSlot);
    rig.write(rig.lane, kSlot);
    CHECK(rig.count(Race::Kind::write_after_write) == 1);
  }
}

TEST_CASE("an event orders what was enqueued before it was recorded and nothing after") {
  Rig rig;
  rig.write(rig.lane, kSlot, "before");
  const Event event = rig.device->record(rig.lane);
  rig.write(rig.lane, {kSlot.begin + 0x10, 0x10}, "after");
  rig.device->wait(rig.compute, event);
  rig.read(rig.compute, {kSlot.begin, 0x10});
  CHECK(rig.device->races().empty());
  rig.read(rig.compute, {kSlot.begin + 0x18, 0x40});
  REQUIRE(rig.device->races().size() == 1);
  CHECK(rig.device->races()[0].range.begin == kSlot.begin + 0x18);
  CHECK(rig.device->races()[0].range.size == 0x8);
}

TEST_CASE("order is passed on through a third stream and through the host") {
  Rig rig;
  const StreamId convert = rig.device->make_stream(Resource::compute, "convert");
  rig.write(rig.lane, kSlot);
  rig.device->wait(convert, rig.device->record(rig.lane));
  rig.read(convert, kSlot);
  rig.device->wait(rig.compute, rig.device->record(convert));
  rig.write(rig.compute, kSlot);
  CHECK(rig.device->races().empty());
  rig.device->sync(rig.device->record(rig.compute));
  rig.write(rig.lane, kSlot);  // enqueued after the host knew
  CHECK(rig.device->races().empty());
}

TEST_CASE("a signal that was waited for orders all that was enqueued before") {
  Rig rig;
  rig.write(rig.lane, kSlot);
  rig.device->await(rig.lane, {});
  rig.read(rig.compute, kSlot);
  CHECK(rig.device->races().empty());
  rig.write(rig.compute, kSlot);
  rig.read(rig.lane, kSlot);
  rig.device->await(rig.compute, {});
  CHECK(rig.count(Race::Kind::read_after_write) == 1);
}

TEST_CASE("what the host touches is checked too") {
  Rig rig;
  rig.read(rig.lane, kSlot, "copy from the host's buffer");
  rig.device->host(Rig::op("the next input", {}, {&kSlot, 1}));
  CHECK(rig.count(Race::Kind::write_after_read) == 1);
}

TEST_CASE("a drained buffer is given back without a finding and an undrained one is not") {
  for (const bool drain : {false, true}) {
    Rig rig;
    Buffer slot(*rig.device, Buffer::Where::device, 0x100, "a slot");
    rig.write(rig.lane, slot.range(), "copy");
    if (drain) rig.device->sync(rig.device->record(rig.lane));
    slot = Buffer();
    CHECK(rig.count(Race::Kind::freed) == (drain ? 0u : 1u));
  }
}

TEST_CASE("waiting for an event that was never recorded is an error") {
  Rig rig;
  rig.write(rig.lane, kSlot);
  CHECK_THROWS_AS(rig.device->wait(rig.compute, Event{rig.lane, 1}), Error);
}

// To a device whose places are operations, both records are one place.
TEST_CASE("what a stream waits for is part of the events recorded behind the wait, not before it") {
  for (const bool behind : {false, true}) {
    Rig rig;
    const StreamId third = rig.device->make_stream(Resource::compute, "third");
    rig.write(rig.lane, kSlot);
    rig.read(rig.compute, {0x9000, 1});
    const Event before = rig.device->record(rig.compute);
    rig.device->wait(rig.compute, rig.device->record(rig.lane));
    const Event after = rig.device->record(rig.compute);
    rig.device->wait(third, behind ? after : before);
    rig.read(third, kSlot);
    CHECK(rig.count(Race::Kind::read_after_write) == (behind ? 0u : 1u));
  }
}

// The audit forgets what the host knows: order must not be forgotten with it.
TEST_CASE("an event that the host has seen to be reached orders as before, however old") {
  Rig rig;
  rig.write(rig.lane, kSlot);
  const Event first = rig.device->record(rig.lane);
  for (int i = 0; i < 100; ++i) {
    rig.read(rig.lane, {0x9000, 1});
    rig.device->sync(rig.device->record(rig.lane));
  }
  rig.device->wait(rig.compute, first);
  CHECK(rig.device->reached(first));
  rig.read(rig.compute, kSlot);
  CHECK(rig.device->races().empty());
  rig.write(rig.lane, kSlot);
  rig.device->wait(rig.compute, first);
  rig.read(rig.compute, kSlot);
  CHECK(rig.count(Race::Kind::read_after_write) == 1);
}
