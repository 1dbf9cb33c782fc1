// The decoder's parts by themselves: the walk, the book of pages, uploads.
#include <vector>

#include "core/device/cpu_device.hpp"
#include "core/error.hpp"
#include "models/kv_cache.hpp"
#include "models/uploader.hpp"
#include "models/walk.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

std::vector<UnitId> ids_of(std::span<const UnitId> span) { return {span.begin(), span.end()}; }

TEST_CASE("a step's soon is the circle from here to here", "[walk]") {
  const std::vector<UnitId> order{1, 2, 3, 4};
  Walk walk(order);
  REQUIRE(walk.size() == 4);
  const Step first = walk.step(0, Phase::prefill, 7, false);
  CHECK(first.index == 0);
  CHECK(first.phase == Phase::prefill);
  CHECK(first.tokens == 7);
  CHECK(ids_of(first.needs) == std::vector<UnitId>{1});
  CHECK(ids_of(first.soon) == std::vector<UnitId>{2, 3, 4});
  CHECK(ids_of(walk.step(2, Phase::decode, 1, false).soon) == std::vector<UnitId>{4, 1, 2});
  const Step end = walk.step(3, Phase::decode, 1, false);
  CHECK(end.index == 2);
  CHECK(ids_of(end.soon) == std::vector<UnitId>{1, 2, 3});
  const UnitId head = 5;
  const Step after = walk.head(head, Phase::decode, 1, false);
  CHECK(after.index == 3);
  CHECK(ids_of(after.needs) == std::vector<UnitId>{5});
  CHECK(ids_of(after.soon) == order);
}

TEST_CASE("in the last pass nothing is asked for beyond it", "[walk]") {
  const std::vector<UnitId> order{1, 2, 3};
  Walk walk(order);
  CHECK(ids_of(walk.step(0, Phase::decode, 1, true).soon) == std::vector<UnitId>{2, 3});
  CHECK(ids_of(walk.step(1, Phase::decode, 1, true).soon) == std::vector<UnitId>{3});
  CHECK(walk.step(2, Phase::decode, 1, true).soon.empty());
  const UnitId head = 4;
  CHECK(walk.head(head, Phase::decode, 1, true).soon.empty());
}

std::vector<std::int32_t> pages_of(const PageTable& table, std::uint32_t sequence) {
  const auto row =
      table.entries().subspan(sequence * table.pages_per_sequence(), table.pages_per_sequence());
  return {row.begin(), row.end()};
}

TEST_CASE("pages are the lowest free ones, taken as positions need them", "[kv]") {
  static_assert(kPageTokens == 64);
  PageTable table(2, 130);  // 3 pages each
  constexpr std::int32_t none = PageTable::kNoPage;
  REQUIRE(table.pages_per_sequence() == 3);
  REQUIRE(table.page_count() == 6);
  CHECK(table.reserve(0, 64));
  CHECK_FALSE(table.reserve(0, 64));
  CHECK(table.reserve(1, 65));
  CHECK(table.reserve(0, 65));
  CHECK(pages_of(table, 0) == std::vector<std::int32_t>{0, 3, none});
  CHECK(pages_of(table, 1) == std::vector<std::int32_t>{1, 2, none});

  table.release(0);
  CHECK(table.reserved(0) == 0);
  CHECK(pages_of(table, 0) == std::vector<std::int32_t>{none, none, none});
  CHECK(table.reserve(1, 130));
  CHECK(pages_of(table, 1) == std::vector<std::int32_t>{1, 2, 0});
  CHECK(table.reserve(0, 130));
  CHECK(pages_of(table, 0) == std::vector<std::int32_t>{3, 4, 5});
}

TEST_CASE("a sequence has no more positions than its context", "[kv]") {
  PageTable table(1, 100);
  CHECK(table.reserve(0, 100));
  CHECK_THROWS_AS(table.reserve(0, 101), Error);  // though its last page would have room
}

// The link is slow, so the host is far ahead: without the wait for a slot's copy, the later values
// would be what the earlier uploads carry.
TEST_CASE("an upload carries what the data was when it was sent", "[uploader]") {
  constexpr std::int32_t kSends = 40;
  constexpr std::uint32_t kSlots = 3;
  const auto device = make_cpu_device({.memory_limit = {}, .link_gbps = 0.0001});
  const StreamId stream = device->make_stream(Resource::compute, "compute");
  Ops ops(*device, stream);
  Uploader uploader(ops, kSlots, 2 * sizeof(std::int32_t), "the test");
  Buffer word(*device, Buffer::Where::device, 2 * sizeof(std::int32_t), "a word");
  std::vector<std::int32_t> seen(2 * kSends, -1);
  for (std::int32_t i = 0; i < kSends; ++i) {
    const std::int32_t parts[2] = {i, 1000 + i};
    const std::span<const std::int32_t> both(parts);
    uploader.send(word.data(), {std::as_bytes(both.first(1)), std::as_bytes(both.last(1))});
    device->enqueue(stream, {.name = "look"},
                    [from = word.as<std::int32_t>(), to = seen.data() + 2 * i](NativeStream) {
                      to[0] = from[0];
                      to[1] = from[1];
                    });
  }
  device->sync(device->record(stream));
  for (std::int32_t i = 0; i < kSends; ++i) {
    CHECK(seen[static_cast<std::size_t>(2 * i)] == i);
    CHECK(seen[static_cast<std::size_t>(2 * i + 1)] == 1000 + i);
  }
  const std::vector<std::byte> large(9);
  CHECK_THROWS_AS(uploader.send(word.data(), {large}), Error);
}

}  // namespace
}  // namespace sluice::test
