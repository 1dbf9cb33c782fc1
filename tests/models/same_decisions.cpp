#include "tests/models/same_decisions.hpp"

#include <sstream>
#include <string>
#include <vector>

#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/engine/engine.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"

namespace sluice::test {
namespace {

Machine machine_with(double link_gbps, double memory_gbps) {
  return {.name = "made up",
          .device_memory_bytes = 1ull << 30,
          .host_memory_bytes = 1ull << 30,
          .h2d = {{{4096, link_gbps}}},
          .d2h = {{{4096, link_gbps}}},
          .memory_gbps = memory_gbps,
          .matrix_tflops = 1,
          .host_read_gbps = 10,
          .op_ns = 1000,
          .copy_ns = 500,
          .enqueue_ns = 200,
          .event_ns = 100,
          .sync_ns = 5000};
}

struct Decided {
  Counters book;
  std::string log;
};

// Layers, and where the model has experts some of them.
std::vector<BudgetSpec> budgets_of(const ModelView& view) {
  std::vector<BudgetSpec> out;
  const auto layers = static_cast<std::uint32_t>(view.layers);
  for (std::uint32_t budget = 1; budget <= layers + 1; ++budget)
    out.emplace_back(LayerBudget{budget});
  if (view.experts_per_layer == 0) return out;
  for (const std::uint32_t slots : {1u, 7u, 30u, 1000u}) out.emplace_back(ExpertBudget{slots});
  return out;
}

Decided run(ModelRig& rig, const PolicyCase& one, const BudgetSpec& budget, std::uint32_t batch) {
  const PolicyPtr policy = policy_of(one);
  std::ostringstream out;
  DecisionLog log(out);
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, one.name, budget,
                {.chunk_bytes = 4096, .decisions = &log});
  // A device that computes nothing routes nothing.
  const auto routing =
      make_uniform_routing(static_cast<std::uint32_t>(rig.config().experts.count), 5);
  const auto decoder = rig.decoder({.context = 80, .sequences = batch}, {.given = routing.get()});
  Generator generator(rig.device(), *decoder, engine, {});
  generator.run(requests_for(rig.config().vocab), batch);
  return {engine.counters(), out.str()};
}

}  // namespace

std::size_t compare_decisions(const std::filesystem::path& checkpoint) {
  ModelRig cpu(checkpoint);
  ModelRig slow_link(checkpoint, {}, make_sim_device(machine_with(0.01, 1)));
  ModelRig fast_link(checkpoint, {}, make_sim_device(machine_with(10, 0.1)));
  const std::vector<BudgetSpec> budgets = budgets_of(cpu.weights().view());
  std::vector<PolicyCase> cases(policy_cases().begin(), policy_cases().end());
  if (cpu.config().experts.count > 0)
    cases.insert(cases.end(), expert_cases().begin(), expert_cases().end());
  std::size_t compared = 0;
  for (const std::uint32_t batch : {1u, 3u})
    for (const PolicyCase& one : cases)
      for (std::size_t at = 0; at < budgets.size(); ++at) {
        CAPTURE(checkpoint.filename(), one.name, one.depth, at, batch);
        const Decided expected = run(cpu, one, budgets[at], batch);
        CHECK_FALSE(expected.log.empty());
        for (ModelRig* sim : {&slow_link, &fast_link}) {
          Decided decided = run(*sim, one, budgets[at], batch);
          // How far a guess got depends on the link; nothing else may.
          decided.book.cancelled_bytes = expected.book.cancelled_bytes;
          CHECK(decided.book == expected.book);
          CHECK((decided.log == expected.log));
          ++compared;
        }
      }
  return compared;
}

}  // namespace sluice::test
