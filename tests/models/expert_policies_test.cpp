// Models with experts: whatever of them is cached and wherever it is read, tokens and logits are those of
// the run with everything resident, bit by bit.
#include <array>

#include "core/engine/engine.hpp"
#include "core/engine/mapped_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/counting_device.hpp"
#include "tests/models/expert_runs.hpp"

namespace sluice::test {
namespace {

TEST_CASE("with experts a few policies and slots give the resident run", "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"));
  for (const std::uint32_t batch : {1u, 4u}) {
    const Output expected = resident_output(rig, batch, [](const UnitInfo&) { return Transfer{}; });
    for (const PolicyCase& one : {PolicyCase{"ring_prefetch", 1}, expert_cases()[0]}) {
      for (const std::uint32_t slots : {1u, 9u}) {
        CAPTURE(one.name, batch, slots);
        const PolicyPtr policy = policy_of(one);
        compare_with_resident(rig, *policy, one.name, ExpertBudget{slots}, batch, expected);
      }
    }
  }
}

// Neighbours in a layer lie in different encodings.
struct MixedExperts final : IOffloadPolicy {
  static Transfer of(const UnitInfo& unit) {
    if (unit.kind != UnitKind::expert) return {};
    constexpr std::array kTransfers{Transfer{Encoding::int4, Encoding::int4}, Transfer{},
                                    Transfer{Encoding::int8, Encoding::int8},
                                    Transfer{Encoding::int8, Encoding::native}};
    return kTransfers[static_cast<std::size_t>(unit.expert) % kTransfers.size()];
  }
  Transfer transfer(const ModelView&, const UnitInfo& unit) const override { return of(unit); }
};

TEST_CASE("experts of one layer may lie in different encodings", "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny-nonorm"), {}, make_test_device(), {}, Stored::all);
  for (const std::uint32_t batch : {1u, 4u}) {
    const Output expected = resident_output(rig, batch, MixedExperts::of);
    CHECK_FALSE(expected ==
                resident_output(rig, batch, [](const UnitInfo&) { return Transfer{}; }));
    for (const std::uint32_t slots : {1u, 6u, 32u}) {
      CAPTURE(batch, slots);
      MixedExperts policy;
      compare_with_resident(rig, policy, "mixed", ExpertBudget{slots}, batch, expected);
    }
  }
}

TEST_CASE("experts read where they lie in the host's memory give the resident run", "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"));
  MappedProvider mapped(rig.weights());
  CHECK(generate(rig, mapped, expert_requests(rig), 4) ==
        resident_output(rig, 4, [](const UnitInfo&) { return Transfer{}; }));
}

TEST_CASE("a step whose experts are all here is one operation and moves no table", "[experts]") {
  auto made = std::make_unique<CountingDevice>(make_test_device());
  CountingDevice& device = *made;
  ModelRig rig(checkpoint("qwen3moe-tiny"), {}, std::move(made));
  const PolicyPtr policy = policy_of({"prefetch", 0});
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, "prefetch",
                ExpertBudget{1000});
  REQUIRE_FALSE(engine.is_fixed());
  const auto decoder = rig.decoder({.context = 80});
  Generator generator(rig.device(), *decoder, engine, {});
  const std::vector<GenerationRequest> request{
      greedy(made_up_prompt(9, 13, rig.config().vocab), kExpertTokens)};
  generator.run(request, 1);  // brings whatever these tokens need
  device.count.clear();
  generator.run(request, 1);
  CHECK(device.count["place_experts"] == 0);
  CHECK(device.count["expert_pairs"] ==
        (kExpertTokens - 1) * walked_units(rig.weights().view()).expert_layers);
}

}  // namespace
}  // namespace sluice::test
