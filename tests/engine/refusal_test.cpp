// What a policy, a budget or a caller may not do: each refused with its figures.
#include "core/engine/setup.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"

namespace sluice::test {
namespace {

// The message of what `run` throws; its type must be E itself or one derived from it.
template <typename E = Error, typename F>
std::string message(const F& run) {
  try {
    run();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, const std::string& part) {
  INFO(text << "\nlacks: " << part);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

struct Rig {
  explicit Rig(const Shape& shape = {.layers = 4}, RecordingDevice::Options options = {})
      : device(options), bench(device, shape), walker(bench) {}

  Engine engine(const BudgetSpec& budget, EngineOptions options = {}) {
    return {bench.device, bench.compute, bench.store, policy, "tested", budget, options};
  }
  std::string refused(Layout layout, const BudgetSpec& budget) {
    policy.on_layout = [=](const ModelView&, const Budget&) { return layout; };
    return message<InputError>([&] { engine(budget); });
  }

  RecordingDevice device;
  Bench bench;
  Walker walker;
  ScriptedPolicy policy;
};

// Units of the four-layer model: 0 embedding, 1 3 5 7 attention, 2 4 6 8 mlp, 9 head.

}  // namespace

TEST_CASE("layouts that cannot work are refused with figures") {
  Rig rig;
  has(rig.refused({.keep = {1, 3}}, LayerBudget{2}),
      "policy tested: the budget holds 2 attention slots and its layout keeps 2 of 4 units; the "
      "other 2 need at least 1 slot to rotate through");
  has(rig.refused({.keep = {1, 3, 5}}, LayerBudget{2}), "its layout keeps 3 of 4 units");
  Layout greedy{.keep = {1}};
  greedy.rotating[UnitKind::attention] = 3;
  has(rig.refused(greedy, LayerBudget{3}),
      "policy tested: the budget holds 3 attention slots, its layout asks for 4 (1 kept)");
  has(rig.refused({.keep = {99}}, LayerBudget{2}), "keeps unit 99; the model's units are 0 to 9");
  has(rig.refused({.keep = {kNoUnit}}, LayerBudget{2}), "keeps unit 4294967295");
  has(rig.refused({.keep = {1, 1}}, LayerBudget{4}), "keeps unit 1 twice");
  has(rig.refused({.keep = {0}}, LayerBudget{4}), "keeps unit 0, the embedding");
  has(rig.refused({.keep = {9}}, LayerBudget{4}), "keeps unit 9, the head");
  Layout head;
  head.rotating[UnitKind::head] = 1;
  has(rig.refused(head, LayerBudget{4}), "asks for 1 rotating head slots");
  has(rig.refused({.lanes = 17}, LayerBudget{4}), "asks for 17 copy lanes; there may be 0 to 16");
  CHECK(rig.device.memory_use().device_bytes == 0);
}

TEST_CASE("layouts at the edge work") {
  Rig rig;
  const auto shape_of = [&](Layout layout, const BudgetSpec& budget) {
    rig.policy.on_layout = [=](const ModelView&, const Budget&) { return layout; };
    return rig.engine(budget).shape();
  };
  const EngineShape all = shape_of({.keep = {8, 7, 6, 5, 4, 3, 2, 1}}, LayerBudget{4});
  CHECK(all.kept[UnitKind::mlp] == 4);
  CHECK(all.rotating[UnitKind::mlp] == 0);
  CHECK(all.slot_bytes == 4 * (1024 + 2304));
  // Rotating slots beyond the units that move would stay empty.
  Layout many{.keep = {1, 3, 5}};
  many.rotating[UnitKind::attention] = 7;
  CHECK(shape_of(many, LayerBudget{4}).rotating[UnitKind::attention] == 1);
  Layout few;
  few.rotating[UnitKind::mlp] = 1;
  const EngineShape one = shape_of(few, LayerBudget{3});
  CHECK(one.rotating[UnitKind::mlp] == 1);
  CHECK(one.rotating[UnitKind::attention] == 3);
  CHECK(one.slot_bytes == 3 * 1024 + 2304);
  CHECK(shape_of({}, LayerBudget{100}).rotating[UnitKind::mlp] == 4);
}

TEST_CASE("a layout may spend a budget of bytes as it likes but not more") {
  Rig rig;
  // The head is 3088, a layer 3328: two layers and 1024 beside them.
  const ByteBudget budget{3088 + 2 * 3328 + 1024};
  const EngineShape plain = rig.engine(budget).shape();
  CHECK(plain.budget.slots[UnitKind::attention] == 2);
  CHECK(plain.budget.bytes == 2 * 3328 + 1024);
  Layout uneven{.keep = {1, 3}};
  uneven.rotating[UnitKind::attention] = 1;
  rig.policy.on_layout = [&](const ModelView&, const Budget&) { return uneven; };
  const EngineShape spent = rig.engine(budget).shape();
  CHECK(spent.slot_bytes == 3 * 1024 + 2 * 2304);
  uneven.rotating[UnitKind::attention] = 2;
  has(message<InputError>([&] { rig.engine(budget); }),
      "policy tested: the budget leaves 7680 bytes for slots and holds 2 attention, 2 mlp; its "
      "layout asks for 4 attention, 2 mlp, which take 8704 bytes");
}

TEST_CASE("encodings that are not there and conversions are refused") {
  Rig rig;
  rig.policy.on_transfer = [](const UnitInfo& unit) {
    return unit.id == 4 ? Transfer{Encoding::int8, Encoding::int8} : Transfer{};
  };
  has(message<InputError>([&] { rig.engine(LayerBudget{2}); }),
      "the mlp of layer 1 (unit 4) is not stored as int8; it is there as native");
  rig.policy.on_transfer = [](const UnitInfo&) {
    return Transfer{Encoding::int4, Encoding::native};
  };
  has(message<InputError>([&] { rig.engine(LayerBudget{2}); }), "is not stored as int4");
}

TEST_CASE("what arrives can become native and nothing else") {
  const std::vector<UnitInfo> units{{0, UnitKind::attention, 0, -1, {1024, 512, 0}},
                                    {1, UnitKind::mlp, 0, -1, {1024, 512, 0}}};
  const ModelView model{units, {}, 1, 0, 0};
  ScriptedPolicy policy;
  GuardedPolicy guarded(policy, "tested");
  policy.on_transfer = [](const UnitInfo&) { return Transfer{Encoding::native, Encoding::int8}; };
  has(message([&] { set_up(model, guarded, LayerBudget{1}); }),
      "policy tested: the attention of layer 0 would cross the link as native and lie on the "
      "device "
      "as int8; there is no conversion between the two");
  policy.on_transfer = [](const UnitInfo&) { return Transfer{Encoding::int8, Encoding::native}; };
  CHECK(set_up(model, guarded, LayerBudget{1}).shape.slot_bytes == 1024 + 1024);
  CHECK(set_up(model, guarded, LayerBudget{1}).shape.staging_bytes == 2 * 512);
  policy.on_transfer = [](const UnitInfo&) { return Transfer{Encoding::int8, Encoding::int8}; };
  CHECK(set_up(model, guarded, LayerBudget{1}).shape.slot_bytes == 512 + 512);
}

TEST_CASE("an exception from any hook ends the run under the policy's name") {
  struct NotAnException {};
  for (const std::string hook :
       {"layout", "transfer", "before", "wanted_guesses", "routed", "victim", "place"})
    for (const bool standard : {true, false}) {
      CAPTURE(hook, standard);
      Rig rig;
      const auto boom = [=] {
        if (standard) throw std::runtime_error("boom {}");
        throw NotAnException{};
      };
      ScriptedPolicy& p = rig.policy;
      if (hook == "layout")
        p.on_layout = [=](auto&&...) {
          boom();
          return Layout{};
        };
      if (hook == "transfer")
        p.on_transfer = [=](auto&&...) {
          boom();
          return Transfer{};
        };
      if (hook == "before")
        p.on_before = [=](const Step& step, Actions&) {
          if (step.index == 5) boom();
        };
      if (hook == "wanted_guesses")
        p.on_wanted_guesses = [=](auto&&...) {
          boom();
          return 0u;
        };
      if (hook == "routed") p.on_routed = [=](auto&&...) { boom(); };
      if (hook == "victim")
        p.on_victim = [=](auto&&...) {
          boom();
          return kNoUnit;
        };
      if (hook == "place")
        p.on_place = [=](auto&&...) {
          boom();
          return Place::device;
        };
      const std::string expected =
          "policy tested threw in " + hook + ": " +
          (standard ? "boom {}" : "something that is not a std::exception");
      if (hook == "layout" || hook == "transfer") {
        CHECK(message([&] { rig.engine(LayerBudget{2}); }) == expected);
      } else {
        {
          Engine engine = rig.engine(LayerBudget{2});
          CHECK(message([&] {
                  const std::vector<UnitId> hints{3};
                  if (hook == "wanted_guesses") engine.wanted_guesses({});
                  if (hook == "routed") engine.routed(hints);
                  rig.walker.run(engine, 2);
                }) == expected);
          // The run is over, the engine is not harmed.
          const std::vector<UnitId> needs{1};
          CHECK(message([&] {
                  static_cast<void>(engine.acquire({.index = 99, .needs = needs}));
                }) == expected);
        }
      }
      CHECK(rig.device.memory_use().device_bytes == 0);
    }
}

TEST_CASE("a victim that throws inside a wish is named and cannot be swallowed") {
  Rig rig;
  rig.policy.on_victim = [](auto&&...) -> UnitId { throw std::runtime_error("boom"); };
  rig.policy.on_before = [](const Step& step, Actions& actions) {
    try {
      for (UnitId unit : step.soon) static_cast<void>(actions.prefetch(unit));
    } catch (...) {
    }
  };
  Engine engine = rig.engine(LayerBudget{1});
  CHECK(message([&] { rig.walker.run(engine, 2); }) == "policy tested threw in victim: boom");
}

TEST_CASE("wishes out of bounds are refused and counted") {
  Rig rig;
  Actions* leaked = nullptr;
  std::vector<Asked> answers;
  rig.policy.on_before = [&](const Step& step, Actions& actions) {
    leaked = &actions;
    if (step.index != 1) return;
    for (UnitId unit : {0u, 10u, kNoUnit, 9u, 1u, 7u}) answers.push_back(actions.prefetch(unit));
    for (UnitId unit : {0u, 9u, 10u, 5u, 2u}) actions.drop(unit);  // only 2 may
    actions.drop(8);                                               // has no slot: nothing to do
    CHECK(!actions.has_slot(2));
    CHECK(!actions.has_slot(10));
    CHECK(!actions.is_kept(10));
    CHECK(actions.is_kept(1));
    CHECK(actions.is_kept(9));
    CHECK(actions.free_slots(UnitKind::mlp) == 2);
    CHECK(actions.rotating_slots(UnitKind::attention) == 1);
  };
  rig.policy.on_layout = [](const ModelView&, const Budget&) { return Layout{.keep = {1}}; };
  Engine engine = rig.engine(LayerBudget{2});
  rig.walker.step(engine, {2});
  rig.walker.step(engine, {5});
  CHECK(answers == std::vector<Asked>{Asked::refused, Asked::refused, Asked::refused,
                                      Asked::already, Asked::already, Asked::no_slot});
  CHECK(engine.counters().refused == 3 + 4);
  // Outside of a hook nothing is carried out.
  CHECK(leaked->prefetch(4) == Asked::refused);
  leaked->drop(5);
  CHECK(leaked->has_slot(5));
  CHECK(engine.counters().refused == 9);
  // Nor inside victim(), which is asked what goes, not what comes.
  int asked = 0;
  rig.policy.on_victim = [&](const UnitInfo&, const Candidates& candidates) {
    ++asked;
    CHECK(leaked->prefetch(4) == Asked::refused);
    leaked->drop(5);
    CHECK(leaked->has_slot(5));
    return candidates.oldest();
  };
  rig.policy.on_before = [&](const Step&, Actions& actions) {
    CHECK(actions.prefetch(7) == Asked::accepted);
    CHECK(actions.prefetch(4) == Asked::accepted);  // allowed again
  };
  rig.walker.step(engine, {2});
  CHECK(asked == 1);
  CHECK(engine.counters().refused == 11);
}

TEST_CASE("a victim that was not offered is refused and the oldest goes") {
  for (const UnitId named : {0u, 1u, 2u, 7u, 9u, 55u, kNoUnit}) {
    CAPTURE(named);
    Rig rig;
    rig.policy.on_victim = [&](const UnitInfo& incoming, const Candidates& candidates) {
      CHECK(incoming.id == 7);
      CHECK(candidates.size() == 2);
      CHECK(candidates.oldest() == 3);
      CHECK(candidates.newer(3) == 5);
      CHECK(candidates.newer(5) == kNoUnit);
      CHECK(candidates.newer(7) == kNoUnit);
      CHECK(candidates.oldest_in(2) == 5);
      CHECK(candidates.oldest_in(0) == kNoUnit);
      CHECK(candidates.oldest_in(-5) == kNoUnit);
      CHECK(candidates.oldest_in(99) == kNoUnit);
      CHECK(candidates.newer_in_layer(5) == kNoUnit);
      CHECK(candidates.contains(5));
      CHECK(!candidates.contains(2));
      CHECK(!candidates.contains(55));
      CHECK(candidates.next_in(5) == 2);
      CHECK(candidates.next_in(3) == kNever);
      CHECK(candidates.next_in(55) == kNever);
      CHECK(candidates.use(5).loaded == 2);
      CHECK(candidates.use(5).last_use == 4);
      CHECK(candidates.use(5).uses == 2);
      CHECK(candidates.info(5).layer == 2);
      CHECK_THROWS_AS(candidates.info(55), Error);
      return named;
    };
    rig.policy.on_layout = [](const ModelView&, const Budget&) { return Layout{.keep = {1}}; };
    Engine engine = rig.engine(LayerBudget{3});
    rig.walker.step(engine, {2});
    rig.walker.step(engine, {3});
    rig.walker.step(engine, {5});
    rig.walker.step(engine, {3});
    rig.walker.step(engine, {5});
    rig.walker.step(engine, {7}, {2, 5, 2, 5});
    CHECK(engine.counters().refused == (named == kNoUnit ? 0 : 1));
    CHECK(rig.walker.wrong_reads() == 0);
  }
}

TEST_CASE("a step that cannot be held or that comes out of order is an error and changes nothing") {
  Rig rig;
  Engine engine = rig.engine(LayerBudget{2});
  const auto refused = [&](std::uint64_t index, std::vector<UnitId> needs) {
    return message([&] { static_cast<void>(engine.acquire({.index = index, .needs = needs})); });
  };
  has(refused(0, {1, 3, 5}),
      "step 0 needs 3 attention units that are not kept; 2 rotating slots hold them");
  has(refused(0, {0}), "the embedding, which stays on the host");
  has(refused(0, {10}), "needs unit 10; the model's units are 0 to 9");
  has(refused(0, {1, 2, 1}), "needs unit 1 twice");
  CHECK(engine.counters() == Counters{});
  CHECK(engine.capacity(UnitKind::attention) == 2);
  CHECK(engine.capacity(UnitKind::head) == 1);
  CHECK(engine.capacity(UnitKind::embedding) == 0);
  CHECK(engine.capacity(UnitKind::expert) == 0);
  rig.walker.step(engine, {1, 3, 2, 9});
  has(refused(0, {1}), "step 0 is acquired after step 0");
  const std::vector<UnitId> needs{5};
  {
    Lease lease = engine.acquire({.index = 7, .needs = needs});
    has(refused(8, {1}), "step 8 is acquired while the lease of step 7 is open");
    has(message([&] { lease.use(1); }), "unit 1 of step 7's needs is used; it has 1");
    rig.walker.read(lease.use(0), 5);
  }
  rig.walker.next_index = 8;
  rig.walker.step(engine, {7});
  CHECK(rig.walker.wrong_reads() == 0);
}

TEST_CASE("a place on the host is refused and the unit brought") {
  Rig rig;
  std::vector<UnitId> asked;
  rig.policy.on_place = [&](const UnitInfo& unit, const Step&) {
    asked.push_back(unit.id);
    return Place::host;
  };
  Engine engine = rig.engine(LayerBudget{4});
  rig.walker.run(engine, 2);
  CHECK(asked == std::vector<UnitId>{2, 4, 6, 8});
  CHECK(engine.counters().refused == 4);
  CHECK(rig.walker.wrong_reads() == 0);
}

TEST_CASE("a memory limit that is too small says what would fit") {
  // The head and one layer and a half.
  Rig rig({.layers = 4}, {.memory_limit = 3088 + 3328 + 1700});
  const std::string text = message<MemoryLimitError>([&] { rig.engine(LayerBudget{4}); });
  has(text, "The head (3088 bytes) and the slots (13312 bytes) do not fit");
  has(text, "a gpu_layer_budget of 1 would");
  CHECK(rig.device.memory_use().device_bytes == 0);
  CHECK(rig.engine(LayerBudget{1}).shape().slot_bytes == 3328);
  Rig tiny({.layers = 4}, {.memory_limit = 5000});
  has(message<MemoryLimitError>([&] { tiny.engine(LayerBudget{1}); }),
      "a gpu_layer_budget of 1 takes 6416 bytes");
  has(message<InputError>([&] { rig.engine(LayerBudget{1}, {.chunk_bytes = 0}); }),
      "chunk_bytes is 0");
  CHECK(rig.device.memory_use().device_bytes == 0);
}

}  // namespace sluice::test
