// The parts of a layer of experts by themselves: steps, lists of pairs, routing.
#include <map>

#include "models/pair_lists.hpp"
#include "models/routing.hpp"
#include "models/walk.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<UnitId> ids(std::span<const UnitId> span) { return {span.begin(), span.end()}; }

TEST_CASE("a walk leaves experts out, and their steps know what follows", "[walk]") {
  // Attention and three experts, attention and MLP, attention and three experts.
  std::vector<UnitInfo> units;
  const auto add = [&](UnitKind kind, std::int32_t expert = -1) {
    UnitInfo unit;
    unit.id = static_cast<UnitId>(units.size());
    unit.kind = kind;
    unit.expert = expert;
    units.push_back(unit);
  };
  const auto add_experts = [&] {
    for (std::int32_t e = 0; e < 3; ++e) add(UnitKind::expert, e);
  };
  add(UnitKind::attention);
  add_experts();
  add(UnitKind::attention);
  add(UnitKind::mlp);
  add(UnitKind::attention);
  add_experts();
  std::vector<UnitId> order;
  for (const UnitInfo& unit : units) order.push_back(unit.id);
  const std::vector<UnitId> walked = walked_by_all({.units = units, .order = order});
  CHECK(walked == std::vector<UnitId>{0, 4, 5, 6});

  Walk walk(walked);
  CHECK(ids(walk.step(3, Phase::decode, 1, false).soon) == std::vector<UnitId>{0, 4, 5});
  const std::vector<UnitId> now{7}, rest{8, 9};
  const Step step = walk.experts(3, Phase::decode, 2, false, now, rest);
  CHECK(step.index == 1);
  CHECK(step.tokens == 2);
  CHECK(ids(step.needs) == now);
  CHECK(ids(step.soon) == std::vector<UnitId>{8, 9, 0, 4, 5, 6});
  CHECK(ids(walk.experts(0, Phase::prefill, 2, true, now, {}).soon) ==
        std::vector<UnitId>{4, 5, 6});
  CHECK(ids(walk.experts(3, Phase::decode, 2, true, now, rest).soon) == rest);
  const Step apart = walk.apart(rest, Phase::decode);
  CHECK(apart.index == 4);
  CHECK(ids(apart.needs) == rest);
  CHECK(apart.soon.empty());
}

TEST_CASE("pairs are listed by expert and by block, each once", "[experts]") {
  const Ids chosen{0, 4, 1, 4, 0, 1, 3, 4, 0, 4};  // five rows of two
  const PairLists lists = list_pairs(chosen, 2, 6, std::vector<std::uint32_t>{1, 3, 5});
  CHECK(lists.experts == std::vector<std::uint32_t>{0, 1, 3, 4});
  CHECK(lists.pairs == Ids{0, 4, 8, 2, 5, 6, 1, 3, 7, 9});
  std::vector<std::vector<std::uint32_t>> runs;
  for (const PairRun& run : lists.runs) runs.push_back({run.expert, run.first, run.count});
  CHECK(
      runs ==
      std::vector<std::vector<std::uint32_t>>{
          {0, 0, 1}, {0, 1, 1}, {0, 2, 1}, {1, 3, 2}, {3, 5, 1}, {4, 6, 1}, {4, 7, 1}, {4, 8, 2}});
}

TEST_CASE("uniform routing draws distinct experts, all alike, the same for the same place",
          "[experts]") {
  const auto routing = make_uniform_routing(10, 3), again = make_uniform_routing(10, 3);
  const auto other = make_uniform_routing(10, 4);
  std::map<std::int32_t, int> count;
  int same = 0;
  for (std::uint32_t position = 0; position < 1000; ++position) {
    for (const std::int32_t layer : {0, 1}) {
      Ids a(4), b(4), c(4);
      routing->choose(7, position, layer, a);
      again->choose(7, position, layer, b);
      other->choose(7, position, layer, c);
      CHECK(a == b);
      same += a == c;
      for (std::size_t k = 0; k + 1 < a.size(); ++k) CHECK(a[k] < a[k + 1]);
      CHECK((a.front() >= 0 && a.back() < 10));
      for (const std::int32_t id : a) ++count[id];
    }
  }
  CHECK(same < 40);  // of 2000: one of 210 sets each
  REQUIRE(count.size() == 10);
  for (const auto& [id, times] : count) CHECK(std::abs(times - 800) < 110);  // 5 deviations
  Ids all(10), one(1);
  routing->choose(0, 0, 0, all);
  CHECK(all == Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  make_uniform_routing(1, 1)->choose(0, 0, 0, one);
  CHECK(one == Ids{0});
}

}  // namespace
}  // namespace sluice::test
