#include <set>
#include <string>

#include "harness/experiment.hpp"
#include "harness/settings.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"

namespace sluice {
namespace {

const char* const kSweep = R"(
model: {synthetic: tiny-dense}
policy: prefetch
budget: {gpu_layer_budget: 8}
sweep:
  policy: [naive_sync, prefetch, {ring_prefetch: {depth: [2, 3]}}, int8_prefetch]
  budget.gpu_layer_budget: [1, 2, 4, 8, 16, 32]
)";

std::vector<Settings> cells_of(const std::string& text, const std::vector<Override>& overrides) {
  return expand(read_document(parse_yaml(text, "x.yaml"), overrides));
}

std::string label(const Settings& cell) {
  const Json inputs = cell.to_json();
  return policy_label(inputs) + "/" + budget_label(inputs);
}

}  // namespace

TEST_CASE("cells are every combination, the first axis slowest, parameters' lists multiplied") {
  const std::vector<Settings> cells = cells_of(kSweep, {});
  REQUIRE(cells.size() == 5 * 6);
  CHECK(label(cells[0]) == "naive_sync/1");
  CHECK(label(cells[5]) == "naive_sync/32");
  CHECK(label(cells[6]) == "prefetch/1");
  CHECK(label(cells[12]) == "ring_prefetch depth=2/1");
  CHECK(label(cells[18]) == "ring_prefetch depth=3/1");
  CHECK(label(cells[29]) == "int8_prefetch/32");
  std::set<std::string> labels;
  for (const Settings& cell : cells) labels.insert(label(cell));
  CHECK(labels.size() == cells.size());
}

TEST_CASE("two lists of parameters multiply") {
  const auto cells = cells_of(
      "sweep: {policy: [{a: {x: [1, 2, 3], y: [4, 5]}}, {plugin: b, params: {z: [6, 7]}}]}", {});
  REQUIRE(cells.size() == 8);
  CHECK(label(cells[0]) == "a x=1 y=4/auto");
  CHECK(label(cells[1]) == "a x=1 y=5/auto");
  CHECK(label(cells[7]) == "b z=7/auto");
}

TEST_CASE("an override of a swept key fixes that axis") {
  const auto with = [&](std::vector<Override> overrides) { return cells_of(kSweep, overrides); };
  const auto layers = with({plain_override("budget.gpu_layer_budget", "3", "--gpu-layer-budget")});
  REQUIRE(layers.size() == 5);
  for (const Settings& cell : layers) CHECK(cell.value("budget.gpu_layer_budget") == 3);

  const auto policy = with({plain_override("policy", "prefetch", "--policy")});
  REQUIRE(policy.size() == 6);
  CHECK(label(policy[0]) == "prefetch/1");

  // Another key of the same group takes the axis's place too.
  const auto bytes = with({parse_override("budget.bytes=1GiB", "--set")});
  REQUIRE(bytes.size() == 5);
  CHECK(bytes[0].to_json()["budget"] == Json{{"bytes", 1u << 30}});

  // Of two that differ neither is meant more than the other.
  const Override size = parse_override("budget.bytes=1GiB", "--set");
  CHECK_THAT(input_error([&] {
               with({size, plain_override("budget.gpu_layer_budget", "2", "--gpu-layer-budget")});
             }),
             Contains("--gpu-layer-budget 2: budget.gpu_layer_budget is given already, by --set "
                      "budget.bytes=1GiB"));
  CHECK(with({size, size}).size() == 5);
}

TEST_CASE("overrides reach every form of value") {
  const auto base = [](const std::vector<Override>& overrides) {
    return read_document(parse_yaml("model: {synthetic: a, seed: 3}", "x.yaml"), overrides).base;
  };
  CHECK(base({parse_override("policy={ring_prefetch: {depth: 2}}", "--set")}).value("policy") ==
        Json{{"plugin", "ring_prefetch"}, {"params", {{"depth", "2"}}}});
  CHECK(base({parse_override("budget={bytes: 64}", "--set")}).value("budget.bytes") == 64);
  const Settings path = base({parse_override("model.path=/m", "--set")});
  CHECK(path.to_json()["model"] == Json{{"path", "/m"}});  // and the seed is gone with the shape
  CHECK(base({plain_override("policy.params.depth", "4", "--param"),
              plain_override("policy", "p", "--policy")})
            .value("policy") == Json{{"plugin", "p"}, {"params", {{"depth", "4"}}}});

  const auto added = read_document(parse_yaml("model: {synthetic: a}", "x.yaml"),
                                   std::vector{parse_override("sweep.dtype=[f32, bf16]", "--set")});
  CHECK(expand(added).size() == 2);
}

TEST_CASE("a parameter of every policy makes equal cells one") {
  const auto cells = cells_of(kSweep, {plain_override("policy.params.depth", "9", "--param")});
  REQUIRE(cells.size() == 4 * 6);
  CHECK(label(cells[12]) == "ring_prefetch depth=9/1");
}

TEST_CASE("a wrong override names the option") {
  const auto message = [](const std::string& assignment) {
    return input_error([&] {
      const Override one = parse_override(assignment, "--set");
      read_document(parse_yaml("name: x", "x.yaml"), std::vector{one});
    });
  };
  CHECK_THAT(message("budget.gpu_layer_bugdet=1"),
             StartsWith("--set budget.gpu_layer_bugdet=1: unknown key") &&
                 Contains("did you mean 'budget.gpu_layer_budget'?"));
  CHECK_THAT(message("budget.gpu_layer_budget=0"), StartsWith("--set budget.gpu_layer_budget=0: "));
  CHECK_THAT(message("dtype"), Contains("must be KEY=VALUE"));
  CHECK_THAT(message("=3"), Contains("must be KEY=VALUE"));
  CHECK_THAT(message("dtype="), Contains("a value is missing"));
  CHECK_THAT(message("dtype=[f32"), StartsWith("--set dtype=[f32:"));
  CHECK_THAT(message("generation=3"), Contains("must be a map"));
  CHECK_THAT(message("sweep.dtype=f32"), Contains("an axis is a list"));
}

TEST_CASE("a sweep of too many cells is refused") {
  std::string text = "sweep:\n";
  for (const char* key : {"generation.seed", "generation.top_k", "measure.warmup"}) {
    text += std::string("  ") + key + ": [";
    for (int i = 0; i < 30; ++i) text += std::to_string(i) + ", ";
    text += "30]\n";
  }
  CHECK_THAT(input_error([&] { cells_of(text, {}); }), Contains("more than 10000 cells"));
}

}  // namespace sluice
