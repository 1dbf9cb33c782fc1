// Synthetic routing: what its caches hit, against figures of the real model; and that it is a function
// of what it is asked.
#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <set>

#include "core/error.hpp"
#include "models/synthetic_routing.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

constexpr std::int32_t kLayers = 48, kExperts = 128;
constexpr std::size_t kTop = 8;
constexpr std::array<std::size_t, 6> kHeld{8, 16, 24, 32, 48, 64};

using Ids = std::array<std::int32_t, kTop>;

// By `kHeld`: the share of uses that find their expert among that many of the layer's last used ones.
// First uses count as hits, as in what it is compared with.
std::array<double, 6> hit_rates(SyntheticRouting& routing, std::uint32_t tokens) {
  std::array<std::size_t, 6> hits{};
  std::size_t uses = 0;
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    std::list<std::int32_t> held;  // all of them, the last used first
    for (std::uint32_t position = 0; position < tokens; ++position) {
      Ids ids;
      routing.choose(0, position, layer, ids);
      for (const std::int32_t id : ids) {
        const auto found = std::ranges::find(held, id);
        const auto before = static_cast<std::size_t>(std::distance(held.begin(), found));
        for (std::size_t i = 0; i < kHeld.size(); ++i)
          hits[i] += found == held.end() || before < kHeld[i] ? 1 : 0;
        ++uses;
      }
      for (const std::int32_t id : ids) {
        held.remove(id);
        held.push_front(id);
      }
    }
  }
  std::array<double, 6> out{};
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<double>(hits[i]) / static_cast<double>(uses);
  return out;
}

}  // namespace

TEST_CASE("by default least recently used hits what it hits on the real model") {
  const std::array real{.47, .65, .75, .83, .92, .97};
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    constexpr std::uint32_t tokens = 512;
    SyntheticRouting routing(kLayers, kExperts, {.seed = seed});
    const std::array<double, 6> rates = hit_rates(routing, tokens);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      CAPTURE(seed, tokens, kHeld[i], rates[i], real[i]);
      CHECK(std::abs(rates[i] - real[i]) < 0.03);
    }
  }
}

TEST_CASE("choices are sets in order, a function of seed, sequence and what came before") {
  SyntheticRouting one(3, 16, {}), two(3, 16, {}), other(3, 16, {.seed = 2});
  std::size_t differ = 0;
  std::vector<std::array<std::int32_t, 4>> first;
  for (int run = 0; run < 2; ++run) {
    std::size_t at = 0;
    for (std::uint32_t position = 0; position < 40; ++position)
      for (std::int32_t layer = 0; layer < 3; ++layer) {
        std::array<std::int32_t, 4> a, b, c, d;
        one.choose(0, position, layer, a);
        if (position % 2 == 0)
          one.choose(1, position, layer, d);  // another sequence changes nothing
        two.choose(0, position, layer, b);
        other.choose(0, position, layer, c);
        CHECK(a == b);
        differ += a != c ? 1 : 0;
        CHECK(std::set(a.begin(), a.end()).size() == 4);
        CHECK(std::ranges::is_sorted(a));
        CHECK((a.front() >= 0 && a.back() < 16));
        if (run == 0)
          first.push_back(a);
        else
          CHECK(a == first[at++]);
      }
    one.begin_run();
    two.begin_run();
  }
  CHECK(differ > 100);
}

TEST_CASE("the next sequence of a slot is another one") {
  SyntheticRouting routing(1, 64, {});
  std::array<std::array<std::int32_t, 8>, 2> begin;
  for (auto& ids : begin) routing.choose(0, 0, 0, ids);
  CHECK(begin[0] != begin[1]);
}

TEST_CASE("all of a layer's experts can be chosen, and only as many as there are") {
  SyntheticRouting routing(1, 8, {.zipf = 8, .stickiness = 1});
  std::array<std::int32_t, 8> all;
  for (std::uint32_t position = 0; position < 3; ++position) {
    routing.choose(0, position, 0, all);
    CHECK(all == std::array<std::int32_t, 8>{0, 1, 2, 3, 4, 5, 6, 7});
  }
  std::array<std::int32_t, 9> more;
  CHECK_THROWS_AS(routing.choose(0, 3, 0, more), Error);
  CHECK_THROWS_AS(SyntheticRouting(1, 8, {.stickiness = 1.5}), Error);
}

}  // namespace sluice::test
