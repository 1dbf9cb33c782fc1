// The policies as pure decision functions: what they move, by a formula worked out by hand.
#include <algorithm>
#include <filesystem>
#include <random>

#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/plugin/fake_engine.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

PolicyPtr policy(const std::string& name, const ParamValues& values = {}) {
  return make_policy(load_plugin(std::filesystem::path(SLUICE_TEST_PLUGIN_DIR) / (name + ".so")),
                     values);
}

constexpr std::int32_t kLayerCounts[] = {1, 2, 3, 5, 8, 12, 36};
constexpr std::uint32_t kPasses = 6;

}  // namespace

TEST_CASE("naive_sync moves every layer for every token unless all fit") {
  for (const std::int32_t layers : kLayerCounts)
    for (std::uint32_t n = 1; n <= static_cast<std::uint32_t>(layers) + 1; ++n) {
      CAPTURE(layers, n);
      const FakeModel model = dense_model(layers);
      const PolicyPtr p = policy("naive_sync");
      FakeEngine engine(model, layer_budget(model, n), *p);
      CHECK(engine.layout().lanes == 1);
      CHECK(engine.layout().blocking);
      const std::uint64_t all = static_cast<std::uint64_t>(layers) * kLayerBytes;
      const bool fits = n >= static_cast<std::uint32_t>(layers);
      const std::vector<Tally> passes = engine.generate(kPasses);
      for (std::uint32_t i = 0; i < kPasses; ++i) {
        CHECK(passes[i].bytes == (fits && i > 0 ? 0 : all));
        CHECK(passes[i].misses == (fits && i > 0 ? 0 : 2 * static_cast<std::uint64_t>(layers)));
      }
      CHECK(engine.tally().wasted == 0);
    }
}

TEST_CASE("prefetch moves every layer for every token unless all fit") {
  for (const std::int32_t layers : kLayerCounts)
    for (std::uint32_t n = 1; n <= static_cast<std::uint32_t>(layers) + 1; ++n) {
      CAPTURE(layers, n);
      const FakeModel model = dense_model(layers);
      const PolicyPtr p = policy("prefetch");
      FakeEngine engine(model, layer_budget(model, n), *p);
      CHECK(engine.layout().lanes == 1);
      CHECK_FALSE(engine.layout().blocking);
      const std::uint64_t all = static_cast<std::uint64_t>(layers) * kLayerBytes;
      const bool fits = n >= static_cast<std::uint32_t>(layers);
      const std::vector<Tally> passes = engine.generate(kPasses);
      // All but the very first unit are there before they are needed.
      CHECK(engine.tally().misses == 1);
      CHECK(engine.tally().wasted == 0);
      CHECK(engine.tally().refused == 0);
      CHECK(engine.tally().bytes == (fits ? all : kPasses * all));
      for (std::uint32_t i = 1; i + 1 < kPasses; ++i) CHECK(passes[i].bytes == (fits ? 0 : all));
    }
}

TEST_CASE("prefetch asks for the next layer and nothing beyond") {
  const FakeModel model = dense_model(4);  // attention of layer i: 1 + 2 i, its MLP 2 + 2 i
  const PolicyPtr p = policy("prefetch");
  FakeEngine engine(model, layer_budget(model, 3), *p);
  const UnitId attention[] = {3}, soon[] = {4, 5, 6, 7, 8, 9, 1, 2};
  engine.step(attention, soon);
  CHECK(engine.resident() == std::vector<UnitId>{3, 4, 5, 9});
  const UnitId mlp[] = {8}, across[] = {9, 1, 2, 3, 4};  // past the head into the next token
  engine.step(mlp, across);
  CHECK(engine.resident() == std::vector<UnitId>{1, 2, 3, 4, 5, 8, 9});
}

TEST_CASE("ring_prefetch moves exactly what it does not keep") {
  for (const std::int32_t layers : kLayerCounts)
    for (std::uint32_t n = 1; n <= static_cast<std::uint32_t>(layers) + 1; ++n)
      for (const std::uint32_t depth : {1u, 2u, 3u, 7u, 64u}) {
        CAPTURE(layers, n, depth);
        const FakeModel model = dense_model(layers);
        const PolicyPtr p = policy("ring_prefetch", {{"depth", std::to_string(depth)}});
        FakeEngine engine(model, layer_budget(model, n), *p);

        const auto total = static_cast<std::uint32_t>(layers);
        const std::uint32_t kept = n >= total ? total : n > depth ? n - depth : 0;
        CHECK(engine.kept(UnitKind::attention) == kept);
        CHECK(engine.kept(UnitKind::mlp) == kept);
        if (kept < total) CHECK(engine.rotating(UnitKind::mlp) == std::min(depth, n));

        const std::uint64_t streamed = std::uint64_t{total - kept} * kLayerBytes;
        // Several generations: what an earlier one left in the ring saves and costs nothing.
        for (std::uint64_t generation = 1; generation <= 3; ++generation) {
          const std::vector<Tally> passes = engine.generate(kPasses);
          for (std::uint32_t i = 1; i + 1 < kPasses; ++i) CHECK(passes[i].bytes == streamed);
          CHECK(engine.tally().bytes == generation * kPasses * streamed);
          // Only the first streamed unit may come late: right at the start nobody could ask for it.
          CHECK(engine.tally().misses <= generation);
        }
        CHECK(engine.tally().wasted == 0);
        CHECK(engine.tally().refused == 0);
      }
}

TEST_CASE("ring_prefetch at depth 1 of 36 layers") {
  const FakeModel model = dense_model(36);
  for (std::uint32_t n = 1; n < 36; ++n) {
    const PolicyPtr p = policy("ring_prefetch");
    FakeEngine engine(model, layer_budget(model, n), *p);
    CHECK(engine.generate(4)[2].bytes == (37 - n) * 400);
  }
}

TEST_CASE("ring_prefetch spreads what it keeps") {
  const FakeModel model = dense_model(36);
  for (std::uint32_t n = 2; n < 36; ++n) {
    const PolicyPtr p = policy("ring_prefetch");
    FakeEngine engine(model, layer_budget(model, n), *p);
    std::vector<bool> kept(36, false);
    for (const UnitId unit : engine.layout().keep)
      if (model.units[unit].kind == UnitKind::mlp)
        kept[static_cast<std::size_t>(model.units[unit].layer)] = true;
    // Streamed layers between kept ones, round the circle: their numbers differ by one at most.
    std::vector<int> gaps;
    const auto first = std::find(kept.begin(), kept.end(), true) - kept.begin();
    int gap = 0;
    for (std::ptrdiff_t i = 1; i <= 36; ++i) {
      if (!kept[static_cast<std::size_t>((first + i) % 36)]) {
        ++gap;
      } else {
        gaps.push_back(gap);
        gap = 0;
      }
    }
    const auto [low, high] = std::minmax_element(gaps.begin(), gaps.end());
    CAPTURE(n);
    CHECK(*high - *low <= 1);
    // What is kept of one kind is kept of the other.
    CHECK(engine.layout().keep.size() == 2 * (n - 1));
  }
}

TEST_CASE("ring_prefetch asks for its lanes") {
  const FakeModel model = dense_model(4);
  const PolicyPtr p = policy("ring_prefetch", {{"lanes", "3"}});
  CHECK(FakeEngine(model, layer_budget(model, 2), *p).layout().lanes == 3);
}

TEST_CASE("the policies carry models of experts") {
  std::random_device seeds;
  const std::uint32_t seed = seeds();
  CAPTURE(seed);
  for (const char* name : {"naive_sync", "prefetch", "ring_prefetch"})
    for (std::uint32_t n = 1; n <= 5; ++n) {
      CAPTURE(name, n);
      std::mt19937 random(seed);
      constexpr std::int32_t kLayers = 4, kExperts = 8, kTop = 2;
      const FakeModel model = expert_model(kLayers, kExperts, kTop);
      const PolicyPtr p = policy(name);
      FakeEngine engine(model, layer_budget(model, n), *p);
      std::vector<UnitId> attention;
      for (const UnitInfo& unit : model.units)
        if (unit.kind == UnitKind::attention) attention.push_back(unit.id);
      for (int pass = 0; pass < 20; ++pass)
        for (std::size_t layer = 0; layer < attention.size(); ++layer) {
          std::vector<UnitId> soon(attention.begin() + static_cast<std::ptrdiff_t>(layer) + 1,
                                   attention.end());
          engine.step({&attention[layer], 1}, soon);
          const UnitId first = attention[layer] + 1;
          const UnitId a = first + random() % kExperts;
          const UnitId b = first + (a - first + 1 + random() % (kExperts - 1)) % kExperts;
          const UnitId chosen[] = {a, b};
          engine.step(chosen, soon);
        }
      CHECK(engine.tally().refused == 0);
      CHECK(engine.tally().wasted == 0);
      if (n < 4) continue;
      // Everything fits: nothing moves twice.
      CHECK(engine.tally().loads <= model.order.size());
      if (std::string(name) == "ring_prefetch") CHECK(engine.tally().loads == 0);
    }
}

TEST_CASE("ring_prefetch keeps all but experts where the budget counts experts") {
  const FakeModel model = expert_model(4, 8, 2);
  const PolicyPtr p = policy("ring_prefetch");
  Budget budget = layer_budget(model, 4);
  budget.slots[UnitKind::expert] = 5;
  const FakeEngine engine(model, budget, *p);
  CHECK(engine.kept(UnitKind::attention) == 4);
  CHECK(engine.kept(UnitKind::expert) == 0);
  CHECK(engine.rotating(UnitKind::expert) == 5);
}
