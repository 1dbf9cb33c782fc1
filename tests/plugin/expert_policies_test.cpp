// Policies for experts, under the real engine and held against caches in plain lists.
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"
#include "tests/messages.hpp"
#include "tests/plugin/slow_caches.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

constexpr std::int32_t kLayers = 5, kExperts = 24, kTop = 4;
const Shape kShape{.layers = kLayers, .experts = kExperts, .experts_per_token = kTop};

PolicyPtr policy_named(const std::string& name, const ParamValues& values = {}) {
  return make_policy(load_plugin(std::filesystem::path(SLUICE_TEST_PLUGIN_DIR) / (name + ".so")),
                     values);
}

UnitId expert(std::int32_t layer, std::int32_t e) {
  return static_cast<UnitId>(1 + layer * (1 + kExperts) + 1 + e);
}
UnitId attention(std::int32_t layer) { return static_cast<UnitId>(1 + layer * (1 + kExperts)); }

// Choices with favourites that change: some experts come back, others do not.
class Routing {
 public:
  explicit Routing(std::uint32_t seed) : random_(seed) {}
  std::vector<UnitId> next(std::int32_t layer) {
    std::vector<UnitId>& last = last_[layer];
    std::vector<UnitId> chosen;
    for (const UnitId unit : last)
      if (random_() % 3 == 0) chosen.push_back(unit);
    while (chosen.size() < kTop) {
      const auto drawn =
          static_cast<std::int32_t>(std::min(random_() % kExperts, random_() % kExperts));
      const UnitId unit = expert(layer, drawn);
      if (std::ranges::find(chosen, unit) == chosen.end()) chosen.push_back(unit);
    }
    std::ranges::sort(chosen);
    return last = chosen;
  }

 private:
  std::mt19937 random_;
  std::map<std::int32_t, std::vector<UnitId>> last_;
};

// An engine over `slots` experts on a device without time, one step at a time.
class Run {
 public:
  Run(PolicyPtr policy, BudgetSpec budget, const Shape& shape = kShape)
      : policy_(std::move(policy)),
        device_(make_sim_device(toy_machine())),
        bench_(*device_, shape),
        engine_(bench_.device, bench_.compute, bench_.store, *policy_, "tested", budget) {}
  Run(PolicyPtr policy, std::uint32_t slots) : Run(std::move(policy), ExpertBudget{slots}) {}

  // Hits of one step.
  std::size_t step(std::vector<UnitId> needs, std::vector<UnitId> soon = {},
                   Phase phase = Phase::decode) {
    const std::uint64_t before = engine_.counters().hits;
    Lease lease =
        engine_.acquire({.index = index_++, .phase = phase, .needs = needs, .soon = soon});
    for (std::size_t i = 0; i < needs.size(); ++i) lease.use(i);
    return engine_.counters().hits - before;
  }
  // A prompt that needs every expert, in groups that fit; the hits.
  std::size_t prefill() {
    std::size_t hits = 0;
    const std::size_t most =
        std::min<std::size_t>(8, std::max(1u, engine_.capacity(UnitKind::expert) / 2));
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      step({attention(layer)}, {}, Phase::prefill);
      std::vector<UnitId> all;
      for (std::int32_t e = 0; e < kExperts; ++e) all.push_back(expert(layer, e));
      for (std::size_t i = 0; i < all.size(); i += most) {
        const auto at = all.begin() + static_cast<std::ptrdiff_t>(i);
        const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(i + most, all.size()));
        std::vector<UnitId> soon(end, all.end());
        if (layer + 1 < kLayers) soon.push_back(attention(layer + 1));
        hits += step({at, end}, soon, Phase::prefill);
      }
    }
    return hits;
  }
  std::uint32_t wanted_guesses() {
    return engine_.wanted_guesses({.index = index_ - 1, .phase = Phase::decode});
  }
  Engine& engine() { return engine_; }

 private:
  PolicyPtr policy_;
  std::unique_ptr<IDevice> device_;
  Bench bench_;
  Engine engine_;
  std::uint64_t index_ = 0;
};

void compare(const PolicyPtr& policy, std::uint32_t slots, SlowCache& slow, std::uint32_t seed) {
  CAPTURE(slots, seed);
  Run run(policy, slots);
  Routing routing(seed);
  std::size_t hits = 0;
  for (int token = 0; token < 60; ++token)
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      CAPTURE(token, layer);
      run.step({attention(layer)});
      const std::vector<UnitId> chosen = routing.next(layer);
      const std::size_t expected = slow.step(chosen, static_cast<std::size_t>(layer));
      REQUIRE(run.step(chosen) == expected);
      hits += expected;
    }
  if (slots > 2 * kTop * kLayers) CHECK(hits > 100);
  CHECK(run.engine().counters().refused == 0);
  CHECK(run.engine().counters().wasted == 0);
}

const char* const kPolicies[] = {"expert_lru", "expert_lfu", "expert_s3fifo", "expert_prefetch"};

}  // namespace

TEST_CASE("expert_lru hits what plain lists hit") {
  const std::uint32_t seed = std::random_device{}();
  for (std::uint32_t slots = kTop; slots <= kLayers * kExperts; slots += 3) {
    SlowGlobalLru global(slots);
    compare(policy_named("expert_lru", {{"scope", "global"}}), slots, global, seed);
    SlowLayerLru layered(slots, kLayers);
    compare(policy_named("expert_lru"), slots, layered, seed);
  }
}

TEST_CASE("expert_lfu hits what sums over all uses hit") {
  const std::uint32_t seed = std::random_device{}();
  for (const int half_life : {1, 7, 40})
    for (std::uint32_t slots = kTop; slots <= kLayers * kExperts; slots += 7) {
      SlowLayerLfu slow(slots, kLayers, half_life);
      compare(policy_named("expert_lfu", {{"half_life", std::to_string(half_life)}}), slots, slow,
              seed);
    }
}

TEST_CASE("one list over all layers says that it hits nothing where it is too short") {
  for (const std::uint32_t slots : {19u, 20u}) {
    Run run(policy_named("expert_lru", {{"scope", "global"}}), slots);
    const std::vector<std::string>& notes = run.engine().shape().notes;
    REQUIRE(notes.size() == (slots < 20 ? 1u : 0u));
    if (slots < 20) CHECK_THAT(notes[0], Contains("19 slots") && Contains("20 experts"));
  }
  CHECK(Run(policy_named("expert_lru"), 19).engine().shape().notes.empty());
}

TEST_CASE("a prefill that bypasses leaves decoding all but a few of its experts") {
  const std::uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  for (const char* name : kPolicies)
    for (const char* scope : {"global", "layer"})
      for (const std::uint32_t region : {8u, 16u, 24u}) {
        CAPTURE(name, scope, region);
        Run run(policy_named(name, {{"scope", scope}, {"prefill_slots", std::to_string(region)}}),
                60);
        Routing routing(seed);
        for (int token = 0; token < 40; ++token)
          for (std::int32_t layer = 0; layer < kLayers; ++layer) run.step(routing.next(layer));
        for (int prompt = 0; prompt < 3; ++prompt) {
          const std::uint64_t before = run.engine().counters().loads;
          run.prefill();
          const std::uint64_t loads = run.engine().counters().loads - before;
          CHECK(loads >= kLayers * kExperts - 60);
          CHECK(loads <= kLayers * kExperts - 60 + region);
        }
        CHECK(run.engine().counters().refused == 0);
        CHECK(run.engine().counters().wasted == 0);
        // And decoding takes all slots back.
        for (int token = 0; token < 200; ++token)
          for (std::int32_t layer = 0; layer < kLayers; ++layer) run.step(routing.next(layer));
        Run fresh(policy_named(name, {{"scope", scope}}), 60);
        Routing again(seed);
        for (int token = 0; token < 240; ++token)
          for (std::int32_t layer = 0; layer < kLayers; ++layer) fresh.step(again.next(layer));
        std::size_t hits = 0, expected = 0;
        for (int token = 0; token < 50; ++token)
          for (std::int32_t layer = 0; layer < kLayers; ++layer) {
            hits += run.step(routing.next(layer));
            expected += fresh.step(again.next(layer));
          }
        CHECK(static_cast<double>(hits) > 0.98 * static_cast<double>(expected));
      }
}

TEST_CASE("a prefill waits for the first group of a layer only") {
  for (const char* name : kPolicies)
    for (const char* prefill : {"bypass", "share"})
      for (const std::uint32_t slots : {16u, 17u, 30u, 119u}) {
        CAPTURE(name, prefill, slots);
        Run run(policy_named(name, {{"prefill", prefill}}), slots);
        for (int prompt = 0; prompt < 3; ++prompt)
          CHECK(run.prefill() >= kLayers * (1 + kExperts - 8) - kLayers);  // attention is kept
        const Counters& book = run.engine().counters();
        CHECK(book.misses <= 3 * kLayers * 8);
        CHECK(book.wasted == 0);
        CHECK(book.refused == 0);
      }
}

TEST_CASE("a prefill that shares sweeps the cache") {
  Run bypassed(policy_named("expert_lru"), 60);
  Run shared(policy_named("expert_lru", {{"prefill", "share"}}), 60);
  std::uint64_t loads[2];
  for (Run* run : {&bypassed, &shared}) {
    Routing routing(7);
    for (int token = 0; token < 40; ++token)
      for (std::int32_t layer = 0; layer < kLayers; ++layer) run->step(routing.next(layer));
    run->prefill();
    const std::uint64_t before = run->engine().counters().loads;
    for (int token = 0; token < 3; ++token)
      for (std::int32_t layer = 0; layer < kLayers; ++layer) run->step(routing.next(layer));
    loads[run == &shared] = run->engine().counters().loads - before;
  }
  CHECK(loads[0] < loads[1]);
}

TEST_CASE("experts through any number of slots are read whole, prefilling and decoding") {
  for (const char* name : kPolicies)
    for (const char* scope : {"global", "layer"})
      for (const char* encoding : {"bf16", "int8", "int4"})
        for (const std::uint32_t slots : {1u, 2u, 3u, 5u, 8u, 9u, 12u, 23u, 24u}) {
          CAPTURE(name, scope, encoding, slots);
          const PolicyPtr policy = policy_named(name, {{"scope", scope}, {"encoding", encoding}});
          const auto device = make_cpu_device();
          Bench bench(*device,
                      {.layers = 3, .experts = 8, .experts_per_token = 4, .quantised = true});
          Walker walker(bench);
          walker.hints = std::string(name) == "expert_prefetch";
          walker.transfer = [&](const UnitInfo& unit) {
            return policy->transfer(bench.store.view(), unit);
          };
          {
            Engine engine(bench.device, bench.compute, bench.store, *policy, name,
                          ExpertBudget{slots}, {.chunk_bytes = 300, .poison = true});
            CHECK(engine.shape().kept[UnitKind::attention] == 3);
            for (int i = 0; i < 2; ++i) walker.run(engine, 6);
            CHECK(engine.counters().refused == 0);
            if (!walker.hints) CHECK(engine.counters().wasted == 0);
          }
          CHECK(walker.wrong_reads() == 0);
        }
}

TEST_CASE("attention rotates as in the ring where a layer budget makes it") {
  for (std::uint32_t layers = 1; layers <= kLayers; ++layers) {
    CAPTURE(layers);
    const auto attention_misses = [&](const char* name) {
      Run run(policy_named(name), LayerBudget{layers});
      std::vector<UnitId> walk;
      for (int token = 0; token < 6; ++token)
        for (std::int32_t layer = 0; layer < kLayers; ++layer) walk.push_back(attention(layer));
      std::size_t misses = 0;
      for (std::size_t i = 0; i < walk.size(); ++i) {
        const std::vector<UnitId> soon(walk.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                       walk.end());
        misses += 1 - run.step({walk[i]}, soon);
        run.step({expert(static_cast<std::int32_t>(i % kLayers), static_cast<std::int32_t>(i % 7))},
                 soon);
      }
      return misses;
    };
    CHECK(attention_misses("expert_lru") == attention_misses("ring_prefetch"));
  }
}

TEST_CASE("expert_prefetch brings what is foreseen, and stops where nothing comes of it") {
  const std::uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  enum class Hints { none, right, wrong };
  int asked = 0;  // in so many of 1000 layers for guesses
  const auto book_with = [&](Hints hints) {
    asked = 0;
    Run run(policy_named("expert_prefetch"), 60);
    Routing routing(seed);
    std::mt19937 random(seed);
    for (int token = 0; token < 200; ++token)
      for (std::int32_t layer = 0; layer < kLayers; ++layer) {
        run.step({attention(layer)});
        const std::vector<UnitId> chosen = routing.next(layer);
        std::vector<UnitId> foreseen = chosen;
        for (UnitId& unit : foreseen)
          if (hints == Hints::wrong) unit = expert(layer, static_cast<std::int32_t>(random() % 24));
        if (hints != Hints::none && run.wanted_guesses() != 0) run.engine().routed(foreseen);
        asked += run.wanted_guesses() != 0 ? 1 : 0;
        run.step(chosen);
      }
    return run.engine().counters();
  };
  const Counters none = book_with(Hints::none), right = book_with(Hints::right);
  CHECK(asked == 1000);
  CHECK(right.misses == 0);
  CHECK(right.loads <= none.loads + none.loads / 10);
  CHECK(right.wasted == 0);
  const Counters wrong = book_with(Hints::wrong);
  CHECK(wrong.wasted > 0);
  CHECK(wrong.wasted < 600);  // of up to 4000
  CHECK(asked < 300);
  CHECK(wrong.refused == 0);
}

TEST_CASE("a guess that was wrong goes before what was needed") {
  Run run(policy_named("expert_prefetch", {{"scope", "global"}}), 6);
  run.step({expert(1, 0), expert(1, 1), expert(1, 2), expert(1, 3)});
  const std::vector<UnitId> wrong{expert(1, 5)};
  run.engine().routed(wrong);
  run.step({expert(1, 0)});
  run.step({expert(1, 6)});
  CHECK(run.engine().counters().wasted == 0);
  run.step({expert(1, 7)});  // finds no free slot
  CHECK(run.engine().counters().wasted == 1);
  CHECK(run.step({expert(1, 1), expert(1, 2), expert(1, 3)}) == 3);
}

TEST_CASE("expert_pinned keeps what its profile names most") {
  const ScratchDir dir;
  std::string text =
      "# sluice routing 1: layers=5 experts=24 per_token=4 expert_bytes=512\n"
      "step,phase,layer,experts,weights\n";
  // In layer l the experts from l on are named most, in fours: 21, 17, 13, .. times.
  for (int step = 0; step < 40; ++step)
    for (int layer = 0; layer < kLayers; ++layer)
      for (int token = 0; token * 4 + 3 + step < 24; ++token)
        text += fmt::format("{},decode,{},{} {} {} {},\n", step, layer, (layer + token * 4) % 24,
                            (layer + token * 4 + 1) % 24, (layer + token * 4 + 2) % 24,
                            (layer + token * 4 + 3) % 24);
  const std::string profile = dir.write("profile.csv", text);
  const PolicyPtr policy = policy_named("expert_pinned", {{"profile", profile}});
  Run run(policy, 40);
  CHECK(run.engine().shape().kept[UnitKind::expert] == 20);
  CHECK(run.engine().shape().rotating[UnitKind::expert] == 20);
  for (int layer = 0; layer < kLayers; ++layer)
    for (int e = 0; e < 4; ++e) {
      CAPTURE(layer, e);
      CHECK(run.step({expert(layer, (layer + e) % 24)}) == 1);
    }
  CHECK(run.engine().counters().loads == 0);
  run.step({expert(0, 20)});
  CHECK(run.engine().counters().loads == 1);

  const auto refusal = [&](const std::string& contents, const Shape& shape = kShape) {
    return input_error([&] {
      Run(policy_named("expert_pinned", {{"profile", dir.write("broken.csv", contents)}}),
          ExpertBudget{10}, shape);
    });
  };
  CHECK_THAT(refusal("hello\n"), Contains("broken.csv") && Contains("line 1"));
  CHECK_THAT(refusal(text + "39,decode,5,1 2 3 4,\n"), Contains("layer '5'"));
  CHECK_THAT(refusal(text, {.layers = 3, .experts = 8, .experts_per_token = 4}),
             Contains("5 layers of 24 experts; the model has 3 of 8"));
  CHECK_THAT(input_error([&] { policy_named("expert_pinned"); }), Contains("profile is missing"));
}

}  // namespace sluice::test
