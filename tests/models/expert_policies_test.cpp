// Models with experts: whatever a policy decides, however few experts are cached, the tokens and logits
// are those of the run with everything resident, bit by bit.
#include <array>
#include <set>

#include "core/device/device_decorator.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/mapped_provider.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"
#include "tests/models/same_decisions.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kNewTokens = 8;

std::vector<GenerationRequest> requests_of(const ModelRig& rig) {
  std::vector<GenerationRequest> out;
  for (const std::size_t length : {3, 65, 17, 1}) {
    out.push_back(greedy(made_up_prompt(length, 12, rig.config().vocab), kNewTokens));
    out.back().want_first_logits = true;
  }
  return out;
}

// How many experts the passes needed: of each layer's those that any row chose.
class NeededExperts final : public IRoutingSink {
 public:
  void routed(const RoutedRows& rows) override {
    CHECK(rows.ids.size() == rows.sequences.size() * rows.per_token);
    CHECK(rows.weights.size() == rows.ids.size());
    count += std::set<std::int32_t>(rows.ids.begin(), rows.ids.end()).size();
    ++layers;
  }
  std::uint64_t count = 0, layers = 0;
};

std::vector<BudgetSpec> budgets_of(const ModelView& view) {
  const auto layers = static_cast<std::uint32_t>(view.layers);
  std::uint32_t experts = 0;
  for (const UnitInfo& unit : view.units) experts += unit.kind == UnitKind::expert;
  std::vector<BudgetSpec> out;
  for (std::uint32_t budget = 1; budget <= layers; ++budget) out.emplace_back(LayerBudget{budget});
  for (const std::uint32_t slots : {1u, 2u, 5u, 24u, experts - 1, experts})
    out.emplace_back(ExpertBudget{slots});
  return out;
}

struct Units {
  std::uint64_t walked = 0, expert_layers = 0;
};
Units units_of(const ModelView& view) {
  Units out;
  for (const UnitInfo& unit : view.units) {
    out.walked += unit.kind == UnitKind::attention || unit.kind == UnitKind::mlp;
    out.expert_layers += unit.expert == 0;
  }
  return out;
}

EngineOptions poisoned() {
  EngineOptions options;
  options.poison = true;
  options.chunk_bytes = 4096;
  options.staging_half_bytes = 10000;
  return options;
}

Output resident_output(ModelRig& rig, std::uint32_t batch, const TransferOf& transfer) {
  ResidentProvider resident(rig.device(), rig.compute(), rig.weights(), transfer);
  return generate(rig, resident, requests_of(rig), batch);
}

void compare(ModelRig& rig, IOffloadPolicy& policy, const char* name, const BudgetSpec& budget,
             std::uint32_t batch, const Output& expected) {
  Engine engine(rig.device(), rig.compute(), rig.weights(), policy, name, budget, poisoned());
  NeededExperts needed;
  CHECK(generate(rig, engine, requests_of(rig), batch, {.sink = &needed}) == expected);
  const Units units = units_of(rig.weights().view());
  const std::uint64_t passes = requests_of(rig).size() / batch * kNewTokens;
  CHECK(needed.layers == passes * units.expert_layers);
  const Counters& book = engine.counters();
  CHECK(book.refused == 0);
  if (engine.is_fixed()) return;  // all experts of a layer are acquired once
  CHECK(book.hits + book.misses == passes * (units.walked + 1) + needed.count);
}

void compare_all(ModelRig& rig, std::span<const PolicyCase> cases) {
  const ModelView view = rig.weights().view();
  for (const std::uint32_t batch : {1u, 4u}) {
    for (const PolicyCase& one : cases) {
      const PolicyPtr asked = policy_of(one);
      const Output expected = resident_output(
          rig, batch, [&](const UnitInfo& unit) { return asked->transfer(view, unit); });
      const std::vector<BudgetSpec> budgets = budgets_of(view);
      for (std::size_t at = 0; at < budgets.size(); ++at) {
        CAPTURE(one.name, one.depth, at, batch);
        const PolicyPtr policy = policy_of(one);
        compare(rig, *policy, one.name, budgets[at], batch, expected);
      }
    }
  }
}

TEST_CASE("with experts every policy at every budget gives the resident run", "[experts]") {
  for (const auto& path : expert_checkpoints()) {
    CAPTURE(path.filename());
    ModelRig rig(path);
    compare_all(rig, policy_cases());
    compare_all(rig, expert_cases());
  }
}

TEST_CASE("with experts in codes every policy at every budget gives the resident run",
          "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"), {}, make_test_device(), {}, Stored::all);
  compare_all(rig, quantised_cases());
  compare_all(rig, quantised_expert_cases());
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
      compare(rig, policy, "mixed", ExpertBudget{slots}, batch, expected);
    }
  }
}

TEST_CASE("experts read where they lie in the host's memory give the resident run", "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"));
  MappedProvider mapped(rig.weights());
  CHECK(generate(rig, mapped, requests_of(rig), 4) ==
        resident_output(rig, 4, [](const UnitInfo&) { return Transfer{}; }));
}

TEST_CASE("policies of experts decide the same on the CPU and on simulated machines", "[experts]") {
  std::size_t compared = 0;
  for (const auto& path : expert_checkpoints()) compared += compare_decisions(path);
  CHECK(compared > 0);
}

// Counts operations by name.
class CountingDevice final : public DeviceDecorator<IDevice> {
 public:
  explicit CountingDevice(std::unique_ptr<IDevice> below)
      : DeviceDecorator(*below), owned_(std::move(below)) {}
  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    ++count[op.name];
    below_.enqueue(stream, op, body);
  }
  std::map<std::string, std::uint64_t> count;

 private:
  std::unique_ptr<IDevice> owned_;
};

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
      greedy(made_up_prompt(9, 13, rig.config().vocab), kNewTokens)};
  generator.run(request, 1);  // brings whatever these tokens need
  device.count.clear();
  generator.run(request, 1);
  CHECK(device.count["place_experts"] == 0);
  CHECK(device.count["expert_pairs"] ==
        (kNewTokens - 1) * units_of(rig.weights().view()).expert_layers);
}

}  // namespace
}  // namespace sluice::test
