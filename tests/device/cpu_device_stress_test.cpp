// Random programs over several streams, ordered by exactly the waits that their data needs, against
// the same program run in one line. Under ThreadSanitizer a wait that does not order is a race.
#include <random>
#include <vector>

#include "core/device/cpu_device.hpp"
#include "tests/catch.hpp"

using namespace sluice;

namespace {

struct Cell {
  std::uint64_t value = 0;     // what the streams work on
  std::uint64_t expected = 0;  // what one line of execution makes of it
  Event write;                 // the last one
  std::vector<Event> reads;    // since then
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t salt) {
  return (a ^ (b * 0x9E3779B97F4A7C15u) ^ salt) * 0xD6E8FEB86659FD93u + 1;
}

void run_random_program(std::uint32_t seed, std::optional<double> link_gbps, int operations) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<Cell> cells(12);  // before the device: its end drains the streams
  const auto device = make_cpu_device({.link_gbps = link_gbps});
  std::vector<StreamId> streams;
  for (std::size_t i = 0; i < 5; ++i)
    streams.push_back(device->make_stream(i < 2 ? Resource::h2d : Resource::compute, "stress"));

  for (int i = 0; i < operations; ++i) {
    const StreamId stream = streams[pick(streams.size())];
    Cell& from = cells[pick(cells.size())];
    Cell& to = cells[pick(cells.size())];
    device->wait(stream, from.write);
    device->wait(stream, to.write, WaitFor::weights);
    for (const Event read : to.reads) device->wait(stream, read);
    if (pick(3) == 0 && &from != &to) {
      device->copy(stream, {.on = Resource::h2d}, &to.value, &from.value, sizeof(to.value));
      to.expected = from.expected;
    } else {
      const std::uint64_t salt = random();
      device->enqueue(stream, {}, [a = &from.value, b = &to.value, salt](NativeStream) {
        *b = mix(*a, *b, salt);
      });
      to.expected = mix(from.expected, to.expected, salt);
    }
    const Event done = device->record(stream);
    from.reads.push_back(done);
    to.write = done;
    to.reads.clear();
    if (pick(50) == 0) {
      Cell& seen = cells[pick(cells.size())];
      device->sync(seen.write);
      REQUIRE(seen.value == seen.expected);
    }
  }
  for (const Cell& cell : cells) {
    device->sync(cell.write);
    REQUIRE(cell.value == cell.expected);
  }
}

}  // namespace

TEST_CASE("random programs end as they would in one line") {
  std::random_device seeds;
  for (int i = 0; i < 20; ++i) run_random_program(seeds(), std::nullopt, 1500);
}

TEST_CASE("random programs over a throttled link end as they would in one line") {
  std::random_device seeds;
  for (int i = 0; i < 5; ++i) run_random_program(seeds(), 0.01, 1500);
}
