// Weights on their way through a ring that is much smaller than they are.
#include "core/engine/staging_ring.hpp"

#include <cstring>
#include <random>

#include "core/device/audit_device.hpp"
#include "core/device/cpu_device.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

TEST_CASE("several threads copy every byte once") {
  for (const unsigned threads : {1u, 2u, 5u}) {
    CopyThreads copies(threads);
    for (const std::size_t bytes : {0u, 1u, 3u, 4096u, 100003u}) {
      std::vector<std::byte> from(bytes + 1), to(bytes + 1, std::byte{0xee});
      for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 7);
      copies.copy(to.data(), from.data(), bytes);
      CHECK(std::memcmp(to.data(), from.data(), bytes) == 0);
      CHECK(to[bytes] == std::byte{0xee});
    }
  }
}

TEST_CASE("what passes through the ring arrives whole, whatever the lane") {
  constexpr std::uint64_t kHalf = 10000, kSeed = 20260160;
  CAPTURE(kSeed);
  std::mt19937_64 rng(kSeed);
  const auto cpu = make_cpu_device();
  const auto device = make_audit_device(*cpu);
  const std::array lanes{device->make_stream(Resource::h2d, "one"),
                         device->make_stream(Resource::h2d, "two")};
  std::vector<std::byte> source(1 << 20);
  for (std::byte& byte : source) byte = static_cast<std::byte>(rng());
  const Buffer target(*device, Buffer::Where::device, source.size(), "target");
  {
    StagingRing ring(*device, kHalf);
    CHECK(ring.half_bytes() == kHalf);
    CHECK(device->memory_use().pinned_bytes == 2 * kHalf);
    for (std::uint64_t at = 0; at < source.size();) {
      const std::uint64_t bytes = std::min<std::uint64_t>(1 + rng() % kHalf, source.size() - at);
      const StreamId lane = lanes[rng() % 2];
      const std::byte* const from = ring.fill(lane, kNoUnit, source.data() + at, bytes);
      const Range reads[] = {range_of(from, bytes)};
      const Range writes[] = {range_of(target.data() + at, bytes)};
      device->copy(
          lane,
          {.name = "load", .on = Resource::h2d, .bytes = bytes, .reads = reads, .writes = writes},
          target.data() + at, from, bytes);
      ring.read_on(lane);
      at += bytes;
    }
    CHECK_THROWS_AS(ring.fill(lanes[0], kNoUnit, source.data(), kHalf + 1), Error);
    for (const StreamId lane : lanes) device->sync(device->record(lane));
  }
  CHECK(std::memcmp(target.data(), source.data(), source.size()) == 0);
  for (const Race& race : device->races()) FAIL_CHECK(race.describe());
}

}  // namespace
}  // namespace sluice::test
