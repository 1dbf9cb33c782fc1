#include "harness/bounds.hpp"

#include "tests/catch.hpp"

using namespace sluice;

TEST_CASE("a phase is bound by what works most, and could take no less than that") {
  const Bound link = bound_of({.h2d_ns = 80, .d2h_ns = 5, .compute_ns = 30, .line_ns = 10}, 100);
  CHECK(link.by == "link");
  CHECK(link.at_best == 1.25);
  CHECK(link.link_percent == 80);
  CHECK(link.compute_percent == 30);
  CHECK(link.host_percent == 10);
  CHECK(bound_of({.d2h_ns = 60, .compute_ns = 50}, 100).by == "link");
  CHECK(bound_of({.h2d_ns = 60, .compute_ns = 90}, 100).by == "compute");
  CHECK(bound_of({.compute_ns = 60, .line_ns = 90}, 100).by == "host");
  CHECK(bound_of({.compute_ns = 60, .host_ns = 90}, 100).by == "host");
}

TEST_CASE("a phase in which nothing works half of the time is bound by waits") {
  const Bound bound = bound_of({.h2d_ns = 40, .compute_ns = 40, .line_ns = 10}, 100);
  CHECK(bound.by == "stall");
  CHECK(bound.at_best == 2.5);
  CHECK(bound_of({}, 100).at_best == 1);
}
