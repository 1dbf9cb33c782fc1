#include "tests/models/expert_runs.hpp"

#include <set>

#include "core/engine/engine.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

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

EngineOptions poisoned() {
  EngineOptions options;
  options.poison = true;
  options.chunk_bytes = 4096;
  options.staging_half_bytes = 10000;
  return options;
}

}  // namespace

std::vector<GenerationRequest> expert_requests(const ModelRig& rig) {
  std::vector<GenerationRequest> out;
  for (const std::size_t length : {3, 65, 17, 1}) {
    out.push_back(greedy(made_up_prompt(length, 12, rig.config().vocab), kExpertTokens));
    out.back().want_first_logits = true;
  }
  return out;
}

WalkedUnits walked_units(const ModelView& view) {
  WalkedUnits out;
  for (const UnitInfo& unit : view.units) {
    out.walked += unit.kind == UnitKind::attention || unit.kind == UnitKind::mlp;
    out.expert_layers += unit.expert == 0;
  }
  return out;
}

Output resident_output(ModelRig& rig, std::uint32_t batch, const TransferOf& transfer) {
  ResidentProvider resident(rig.device(), rig.compute(), rig.weights(), transfer);
  return generate(rig, resident, expert_requests(rig), batch);
}

void compare_with_resident(ModelRig& rig, IOffloadPolicy& policy, const char* name,
                           const BudgetSpec& budget, std::uint32_t batch, const Output& expected) {
  Engine engine(rig.device(), rig.compute(), rig.weights(), policy, name, budget, poisoned());
  NeededExperts needed;
  CHECK(generate(rig, engine, expert_requests(rig), batch, {.sink = &needed}) == expected);
  const WalkedUnits units = walked_units(rig.weights().view());
  const std::uint64_t passes = expert_requests(rig).size() / batch * kExpertTokens;
  CHECK(needed.layers == passes * units.expert_layers);
  const Counters& book = engine.counters();
  CHECK(book.refused == 0);
  if (engine.is_fixed()) return;  // all experts of a layer are acquired once
  CHECK(book.hits + book.misses == passes * (units.walked + 1) + needed.count);
}

}  // namespace sluice::test
