// What the policies of strategies/ decide, line by line, on a model of four layers: a change that
// alters decisions shows in tests/data/decisions. SLUICE_WRITE_GOLDEN=1 writes the files anew.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

struct GoldenChoice {
  const char* file;
  const char* policy;
  ParamValues values;
  bool experts = false;  // the model has layers of them
};

const std::uint32_t kLayerBudgets[] = {1, 3}, kExpertSlots[] = {3, 9};

// Two tokens under each of two budgets; of experts, six.
std::string decisions_of(const GoldenChoice& choice, IDevice& device) {
  const auto plugin =
      load_plugin(fs::path(SLUICE_TEST_PLUGIN_DIR) / (std::string(choice.policy) + ".so"));
  std::ostringstream out;
  for (const std::uint32_t budget : choice.experts ? kExpertSlots : kLayerBudgets) {
    out << "{\"budget\":{\"" << (choice.experts ? "expert_slots" : "gpu_layer_budget")
        << "\":" << budget << "}}\n";
    DecisionLog log(out);
    const PolicyPtr policy = make_policy(plugin, choice.values);
    Bench bench(device, choice.experts ? Shape{.layers = 2, .experts = 6, .experts_per_token = 3}
                                       : Shape{.layers = 4});
    Walker walker(bench);
    const BudgetSpec spec =
        choice.experts ? BudgetSpec(ExpertBudget{budget}) : BudgetSpec(LayerBudget{budget});
    Engine engine(bench.device, bench.compute, bench.store, *policy, choice.policy, spec,
                  {.decisions = &log});
    walker.run(engine, choice.experts ? 6 : 2);
  }
  return out.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("the policies decide what their golden logs say, on every device") {
  const GoldenChoice choices[] = {{"naive_sync", "naive_sync", {}},
                                  {"prefetch", "prefetch", {}},
                                  {"ring_prefetch", "ring_prefetch", {}},
                                  {"ring_prefetch-depth2", "ring_prefetch", {{"depth", "2"}}},
                                  {"expert_lru", "expert_lru", {}, true},
                                  {"expert_lru-global", "expert_lru", {{"scope", "global"}}, true},
                                  {"expert_lfu", "expert_lfu", {}, true},
                                  {"expert_s3fifo", "expert_s3fifo", {}, true},
                                  {"expert_prefetch", "expert_prefetch", {}, true}};
  for (const GoldenChoice& choice : choices) {
    const fs::path golden =
        fs::path(SLUICE_TEST_DATA) / "decisions" / (std::string(choice.file) + ".jsonl");
    const auto cpu = make_cpu_device();
    const auto sim = make_sim_device(toy_machine());
    const std::string decided = decisions_of(choice, *cpu);
    if (std::getenv("SLUICE_WRITE_GOLDEN")) std::ofstream(golden, std::ios::binary) << decided;
    CHECK(decisions_of(choice, *sim) == decided);
    const std::vector<std::string> lines = lines_of(decided), expected = lines_of(bytes_of(golden));
    REQUIRE(!expected.empty());
    for (std::size_t i = 0; i < std::min(lines.size(), expected.size()); ++i) {
      INFO(golden.string() << ":" << i + 1);
      REQUIRE(lines[i] == expected[i]);
    }
    CHECK(lines.size() == expected.size());
  }
}

}  // namespace sluice::test
