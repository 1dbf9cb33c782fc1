#include "core/device/throttled_link.hpp"

#include "tests/catch.hpp"

using sluice::ThrottledLink;

TEST_CASE("copies follow each other at the rate of the link") {
  ThrottledLink link(2.0);
  CHECK(link.reserve(100, 2000) == 1100);
  CHECK(link.reserve(100, 2000) == 2100);  // ready long ago: waits for the one before
  CHECK(link.reserve(1500, 200) == 2200);
}

TEST_CASE("an idle link begins when the copy is ready") {
  ThrottledLink link(1.0);
  CHECK(link.reserve(0, 500) == 500);
  CHECK(link.reserve(700, 500) == 1200);
}

TEST_CASE("many small copies keep the rate") {
  ThrottledLink link(3.0);  // a third of a nanosecond a byte
  std::uint64_t end = 0;
  for (int i = 0; i < 3'000'000; ++i) end = link.reserve(0, 1);
  CHECK(end >= 999'999);
  CHECK(end <= 1'000'000);
}

TEST_CASE("two streams that take turns share the rate") {
  ThrottledLink link(10.0);
  std::uint64_t ends[2] = {0, 0};
  for (int i = 0; i < 1000; ++i) ends[i % 2] = link.reserve(ends[i % 2], 1 << 20);
  // 1000 MiB at 10 GB/s.
  CHECK(ends[1] >= 104'857'599);
  CHECK(ends[1] <= 104'857'600);
}
