#include "core/device/sim_device.hpp"

#include "tests/catch.hpp"

using namespace sluice;

namespace {

// Round figures: a byte of link or memory takes 1 ns, so times can be added in the head.
Machine round_machine() {
  return {.name = "round",
          .device_memory_bytes = 1'000'000,
          .host_memory_bytes = 1'000'000,
          .h2d = {{{1, 1.0}}},
          .d2h = {{{1, 2.0}}},
          .memory_gbps = 1,
          .matrix_tflops = 0.001,  // 1 operation a ns
          .host_read_gbps = 0.5,
          .op_ns = 10,
          .copy_ns = 5,
          .enqueue_ns = 1,
          .event_ns = 0,
          .sync_ns = 0};
}

const Body kNothing = [](NativeStream) {};

Op kernel(std::uint64_t bytes, std::uint64_t flops = 0) {
  return {.name = "kernel",
          .unit = kNoUnit,
          .on = Resource::compute,
          .bytes = bytes,
          .flops = flops,
          .reads = {},
          .writes = {}};
}
Op transfer(Resource on, std::uint64_t bytes) {
  return {.name = "copy",
          .unit = kNoUnit,
          .on = on,
          .bytes = bytes,
          .flops = 0,
          .reads = {},
          .writes = {}};
}

}  // namespace

TEST_CASE("an operation takes its fixed cost and the larger of moving and computing") {
  const auto device = make_sim_device(round_machine());
  const StreamId s = device->make_stream(Resource::compute, "compute");
  device->enqueue(s, kernel(100, 30), kNothing);  // enqueued at 1, runs 10 + 100
  device->sync(device->record(s));
  CHECK(device->now_ns() == 111);
  device->enqueue(s, kernel(30, 100), kNothing);  // enqueued at 112
  device->sync(device->record(s));
  CHECK(device->now_ns() == 222);
}

TEST_CASE("an operation of several parts has the fixed cost of each") {
  const auto device = make_sim_device(round_machine());
  const StreamId s = device->make_stream(Resource::compute, "compute");
  Op op = kernel(100);
  op.parts = 4;
  device->enqueue(s, op, kNothing);  // enqueued at 1, runs 4 * 10 + 100
  device->sync(device->record(s));
  CHECK(device->now_ns() == 141);
}

TEST_CASE("copies of two streams share a link and overlap with compute") {
  const auto device = make_sim_device(round_machine());
  const StreamId a = device->make_stream(Resource::h2d, "a");
  const StreamId b = device->make_stream(Resource::h2d, "b");
  const StreamId c = device->make_stream(Resource::compute, "c");
  device->copy(a, transfer(Resource::h2d, 100), nullptr, nullptr, 100);  // 1 .. 106
  device->copy(b, transfer(Resource::h2d, 100), nullptr, nullptr, 100);  // 106 .. 211
  device->enqueue(c, kernel(90), kNothing);                              // 3 .. 103
  device->sync(device->record(c));
  CHECK(device->now_ns() == 103);
  CHECK_FALSE(device->reached(device->record(a)));
  device->sync(device->record(b));
  CHECK(device->now_ns() == 211);
  CHECK(device->reached(device->record(a)));
  CHECK(device->busy().h2d_ns == 210);
  CHECK(device->busy().compute_ns == 100);
}

TEST_CASE("a kernel and a copy that are in each other's way both take longer") {
  Machine machine = round_machine();
  machine.compute_beside_h2d = 0.5;
  machine.h2d_beside_compute = 0.25;
  const auto device = make_sim_device(machine);
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  device->copy(lane, transfer(Resource::h2d, 100), nullptr, nullptr, 100);  // from 1, 5 + 100
  device->enqueue(compute, kernel(90), kNothing);  // from 2, 100 at half its pace
  device->sync(device->record(compute));
  CHECK(device->now_ns() == 202);
  device->sync(device->record(lane));  // did 1 alone, 200 / 4 beside, and the other 54 alone
  CHECK(device->now_ns() == 256);
  CHECK(device->busy().h2d_ns == 255);
  CHECK(device->busy().compute_ns == 200);
}

TEST_CASE("copies over a link that is slowed down end when it lets them") {
  Machine machine = round_machine();
  machine.link_limit_gbps = 0.5;
  const auto device = make_sim_device(machine);
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const Event start = device->record(lane);
  CHECK(device->reached(start));
  device->copy(lane, transfer(Resource::h2d, 100), nullptr, nullptr, 100);  // 1 .. 201
  device->copy(lane, transfer(Resource::h2d, 100), nullptr, nullptr, 100);  // 201 .. 401
  device->sync(device->record(lane));
  CHECK(device->now_ns() == 401);
  CHECK(device->busy().h2d_ns == 400);
}

TEST_CASE("a copy that was not queued behind the last one has a slow link for a time of its own") {
  Machine machine = round_machine();
  machine.link_limit_gbps = 0.5;
  const auto device = make_sim_device(machine);
  const StreamId back = device->make_stream(Resource::d2h, "back");
  device->copy(back, transfer(Resource::d2h, 100), nullptr, nullptr, 100);  // 1 .. 201
  device->sync(device->record(back));
  device->copy(back, transfer(Resource::d2h, 100), nullptr, nullptr, 100);  // 202 .. 402
  device->sync(device->record(back));
  CHECK(device->now_ns() == 402);
}

TEST_CASE(
    "a copy that rests until its link lets it end is in nobody's way, and late bytes catch up") {
  Machine machine = round_machine();
  machine.link_limit_gbps = 0.5;
  machine.compute_beside_h2d = 0.5;
  machine.h2d_beside_compute = 0.25;
  const auto device = make_sim_device(machine);
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  for (int i = 0; i < 3; ++i)  // at the earliest until 201, 401 and 601
    device->copy(lane, transfer(Resource::h2d, 95), nullptr, nullptr, 100);
  // From 4, 3 of the first copy's 105 being done: that takes 102 * 4 = 408 beside it, until 412; the
  // second's begins at once, from where 204 of this one's 310 are done, and 212 more are needed: 624.
  device->enqueue(compute, kernel(300), kNothing);
  device->sync(device->record(compute));
  CHECK(device->now_ns() == 624);
  // The second did 53 of 105 beside it, and ends at 676; the third, which was to end at 601, at 781.
  device->sync(device->record(lane));
  CHECK(device->now_ns() == 781);
}

TEST_CASE("a copy back is in nobody's way") {
  Machine machine = round_machine();
  machine.compute_beside_h2d = machine.h2d_beside_compute = 0.5;
  const auto device = make_sim_device(machine);
  const StreamId back = device->make_stream(Resource::d2h, "back");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  device->copy(back, transfer(Resource::d2h, 190), nullptr, nullptr, 190);  // 1 .. 101
  device->enqueue(compute, kernel(90), kNothing);                           // 2 .. 102
  device->sync(device->record(compute));
  CHECK(device->now_ns() == 102);
  CHECK(device->busy().d2h_ns == 100);
}

TEST_CASE("a copy issued behind a queue of another stream finishes last") {
  const auto device = make_sim_device(round_machine());
  const StreamId first = device->make_stream(Resource::h2d, "first");
  const StreamId second = device->make_stream(Resource::h2d, "second");
  for (int i = 0; i < 10; ++i)
    device->copy(first, transfer(Resource::h2d, 95), nullptr, nullptr, 95);
  device->copy(second, transfer(Resource::h2d, 5), nullptr, nullptr, 5);
  device->sync(device->record(second));
  CHECK(device->now_ns() == 1 + 10 * 100 + 10);
}

TEST_CASE("a stream that waits for weights counts its stall") {
  const auto device = make_sim_device(round_machine());
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  device->enqueue(compute, kernel(40), kNothing);                           // 1 .. 51
  device->copy(lane, transfer(Resource::h2d, 195), nullptr, nullptr, 195);  // 2 .. 202
  device->wait(compute, device->record(lane), WaitFor::weights);
  device->enqueue(compute, kernel(40), kNothing);  // 202 .. 252
  device->sync(device->record(compute));
  CHECK(device->now_ns() == 252);
  CHECK(device->stall_ns(compute) == 202 - 51);
  CHECK(device->stall_ns(lane) == 0);
}

TEST_CASE("waiting for weights that are there is no stall") {
  const auto device = make_sim_device(round_machine());
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  device->copy(lane, transfer(Resource::h2d, 5), nullptr, nullptr, 5);  // 1 .. 11
  const Event ready = device->record(lane);
  device->enqueue(compute, kernel(90), kNothing);  // 2 .. 102
  device->wait(compute, ready, WaitFor::weights);
  device->enqueue(compute, kernel(90), kNothing);
  device->sync(device->record(compute));
  CHECK(device->now_ns() == 202);
  CHECK(device->stall_ns(compute) == 0);
}

TEST_CASE("a simulated deadlock is an error and not a hang") {
  const auto device = make_sim_device(round_machine());
  const StreamId a = device->make_stream(Resource::compute, "a");
  const StreamId b = device->make_stream(Resource::compute, "b");
  device->wait(a, {b, 1});
  device->enqueue(a, kernel(1), kNothing);
  device->wait(b, {a, 1});
  device->enqueue(b, kernel(1), kNothing);
  CHECK_THROWS_AS(device->sync(device->record(a)), Error);
}

TEST_CASE("nothing later happens before the host goes on from a wait") {
  const auto device = make_sim_device(round_machine());
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  const StreamId back = device->make_stream(Resource::d2h, "back");
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId other = device->make_stream(Resource::compute, "other");
  device->enqueue(compute, kernel(9990), kNothing);                           // 1 .. 10001
  device->copy(back, transfer(Resource::d2h, 190), nullptr, nullptr, 190);    // 2 .. 102
  device->copy(lane, transfer(Resource::h2d, 4995), nullptr, nullptr, 4995);  // 3 .. 5003
  device->wait(other, device->record(back));
  device->sync(device->record(other));  // at 102, while two others go on
  CHECK(device->now_ns() == 102);
  CHECK(device->busy().h2d_ns == 99);
  device->copy(back, transfer(Resource::d2h, 190), nullptr, nullptr, 190);
  device->sync(device->record(compute));
  CHECK(device->now_ns() == 10001);
}

TEST_CASE("simulated memory obeys the limit and costs nothing") {
  const auto device = make_sim_device(round_machine(), 1000);
  const Buffer held(*device, Buffer::Where::device, 600, "slots");
  CHECK_THROWS_AS(device->allocate(600, "more slots"), MemoryLimitError);
  const Buffer pinned(*device, Buffer::Where::pinned, 1ull << 40, "a tebibyte of weights");
  CHECK(device->memory_use().pinned_bytes == 1ull << 40);
  CHECK_FALSE(device->info().executes);
}

TEST_CASE("a simulated limit must be one that the machine has") {
  CHECK_THROWS_AS(make_sim_device(round_machine(), 0), InputError);
  CHECK_THROWS_AS(make_sim_device(round_machine(), 1'000'001), InputError);
  CHECK(make_sim_device(round_machine(), 1'000'000)->info().memory_limit == 1'000'000);
}

TEST_CASE("two simulated devices share no addresses") {
  const auto one = make_sim_device(round_machine()), other = make_sim_device(round_machine());
  const Buffer a(*one, Buffer::Where::pinned, 5000, "a");
  const Buffer b(*other, Buffer::Where::device, 5000, "b");
  CHECK((a.range().begin + a.bytes() <= b.range().begin ||
         b.range().begin + b.bytes() <= a.range().begin));
}

TEST_CASE("work counts as far as it is done by now") {
  Machine machine = round_machine();
  machine.enqueue_ns = 10;
  machine.event_ns = 5;
  machine.sync_ns = 3;
  const auto device = make_sim_device(machine);
  const StreamId lane = device->make_stream(Resource::h2d, "lane");
  const StreamId compute = device->make_stream(Resource::compute, "compute");
  device->copy(lane, transfer(Resource::h2d, 95), nullptr, nullptr, 95);  // 10 .. 110
  device->enqueue(compute, kernel(20), kNothing);                         // 20 .. 50
  device->sync(device->record(compute));                                  // at 50, then 3
  const BusyTimes busy = device->busy();
  CHECK(device->now_ns() == 53);
  CHECK(busy.h2d_ns == 53 - 10);
  CHECK(busy.compute_ns == 30);
  CHECK(busy.line_ns == 10 + 10 + 5 + 3);
  device->sync(device->record(lane));
  CHECK((device->busy() - busy).h2d_ns == 110 - 53);
}

TEST_CASE("a rate curve is exact at its points and monotonic between them") {
  const RateCurve curve{{{1000, 1.0}, {10'000, 5.0}}};
  CHECK(curve.ns(0) == 0);
  CHECK(curve.ns(1000) == 1000);
  CHECK(curve.ns(10'000) == 2000);
  CHECK(curve.ns(100'000) == 20'000);
  CHECK(curve.ns(5'500) == 1500);
}

TEST_CASE("an event recorded behind a wait is reached after what was waited for") {
  const auto device = make_sim_device(round_machine());
  const StreamId link = device->make_stream(Resource::h2d, "copy");
  const StreamId middle = device->make_stream(Resource::compute, "middle");
  const StreamId last = device->make_stream(Resource::compute, "last");
  device->copy(link, transfer(Resource::h2d, 100), nullptr, nullptr, 100);  // from 1, 5 + 100
  device->enqueue(middle, kernel(10), kNothing);                            // from 2, 10 + 10
  CHECK(!device->reached(device->record(middle)));
  device->wait(middle, device->record(link));
  device->wait(last, device->record(middle));
  device->enqueue(last, kernel(10), kNothing);
  device->sync(device->record(last));
  CHECK(device->now_ns() == 126);
  CHECK(device->reached(device->record(middle)));
}

TEST_CASE("the host can wait for a wait that nothing follows") {
  const auto device = make_sim_device(round_machine());
  const StreamId link = device->make_stream(Resource::h2d, "copy");
  const StreamId middle = device->make_stream(Resource::compute, "middle");
  device->copy(link, transfer(Resource::h2d, 100), nullptr, nullptr, 100);
  device->wait(middle, device->record(link));
  device->sync(device->record(middle));
  CHECK(device->now_ns() == 106);
}
