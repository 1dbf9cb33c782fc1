#include <string>

#include "harness/experiment.hpp"
#include "harness/settings.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

Document read(const std::string& text, const std::vector<Override>& overrides = {}) {
  return read_document(parse_yaml(text, "x.yaml"), overrides);
}

Experiment experiment_of(const std::string& text) {
  const Document document = read(text);
  return make_experiment(document.base, "dir/x.yaml");
}

}  // namespace

TEST_CASE("every wrong value is an error with its place and what would be right") {
  struct Case {
    const char* text;
    const char* place;
    const char* message;
  };
  const Case cases[] = {
      // unknown keys, with the nearest
      {"nmae: x\n", "x.yaml:1:1", "unknown key 'nmae'; did you mean 'name'?"},
      {"generation: {max_new_token: 5}\n", "x.yaml:1:14",
       "did you mean 'generation.max_new_tokens'?"},
      {"max_new_tokens: 5\n", "x.yaml:1:1", "did you mean 'generation.max_new_tokens'?"},
      {"budget:\n  gpu_layers_budget: 2\n", "x.yaml:2:3",
       "did you mean 'budget.gpu_layer_budget'?"},
      {"zzzzzzzz: 5\n", "x.yaml:1:1", "Known keys: name, model, device, policy, budget, dtype"},
      {"device: {zzzzzzzz: 5}\n", "x.yaml:1:10", "Known in 'device': kind, machine"},
      {"name.x: 5\n", "x.yaml:1:1", "unknown key 'name.x'"},
      // types
      {"generation: {max_new_tokens: many}\n", "x.yaml:1:30",
       "generation.max_new_tokens must be an integer, 1 to 1000000, not the text 'many'"},
      {"generation: {max_new_tokens: 1.5}\n", "x.yaml:1:30", "not the number 1.5"},
      {"generation: {max_new_tokens: '5'}\n", "x.yaml:1:30", "not the text '5'"},
      {"generation: {max_new_tokens: [1, 2]}\n", "x.yaml:1:30", "not a list"},
      {"generation: {max_new_tokens:}\n", "x.yaml:1:14", "not nothing"},
      {"generation: 5\n", "x.yaml:1:13", "generation must be a map of keys, not the number 5"},
      {"generation: [5]\n", "x.yaml:1:13", "generation must be a map of keys, not a list"},
      {"generation: {greedy: yes}\n", "x.yaml:1:22", "must be true or false, not the text 'yes'"},
      {"generation: {top_p: .nan}\n", "x.yaml:1:21", "must be a number, above 0 to 1"},
      {"device: {kind: gpu}\n", "x.yaml:1:16", "must be cpu, cuda or sim, not the text 'gpu'"},
      {"device: {kind: cuad}\n", "x.yaml:1:16", "did you mean 'cuda'?"},
      {"device: {memory_limit: 8 bananas}\n", "x.yaml:1:24", "a size like 8GiB"},
      {"dtype: bf61\n", "x.yaml:1:8", "must be auto, f32, bf16 or f16"},
      {"name: [a]\n", "x.yaml:1:7", "must be a text, not a list"},
      {"[1, 2]\n", "x.yaml:1:1", "an experiment is a map of keys, not a list"},
      {"", "x.yaml:1:1", "empty"},
      // ranges
      {"budget: {gpu_layer_budget: 0}\n", "x.yaml:1:28", "1 to 1000000, or auto, not 0"},
      {"budget: {gpu_layer_budget: -3}\n", "x.yaml:1:28", "1 to 1000000, or auto, not -3"},
      {"budget: {bytes: 0}\n", "x.yaml:1:17", "above 0, not 0"},
      {"budget: {expert_slots: 0}\n", "x.yaml:1:24", "not 0"},
      {"generation: {seed: 99999999999999999999}\n", "x.yaml:1:20", "not 99999999999999999999"},
      {"generation: {top_p: 0}\n", "x.yaml:1:21", "not 0"},
      {"generation: {temperature: -1}\n", "x.yaml:1:27", "not -1"},
      {"device: {link_gbps: 0}\n", "x.yaml:1:21", "0.001 to 1000000"},
      {"measure: {repeats: 0}\n", "x.yaml:1:20", "1 to 1000"},
      // what excludes each other
      {"budget: {gpu_layer_budget: 2, bytes: 1GiB}\n", "x.yaml:1:", "exclude each other"},
      {"model: {path: a, synthetic: b}\n", "x.yaml:1:", "exclude each other"},
      {"model: {path: a, seed: 3}\n", "x.yaml:1:24", "only beside model.synthetic"},
      // policies
      {"policy: {a: {}, b: {}}\n", "x.yaml:1:9", "policy must be NAME"},
      {"policy: [a]\n", "x.yaml:1:9", "policy must be NAME"},
      {"policy: {plugin: a, parms: {}}\n", "x.yaml:1:21", "unknown key 'parms' beside 'plugin'"},
      {"policy: {plugin: a, params: 3}\n", "x.yaml:1:29", "must be a map"},
      {"policy: {a: {depth: [1, 2]}}\n", "x.yaml:1:21", "only what stands under 'sweep' is swept"},
      {"policy: {a: {depth: {x: 1}}}\n", "x.yaml:1:21", "needs a value, not a map"},
      // prompts and stops
      {"generation: {prompts: []}\n", "x.yaml:1:23", "at least one"},
      {"generation: {prompts: [{text: ''}]}\n", "x.yaml:1:31", "not empty"},
      {"generation: {prompts: [{ids: []}]}\n", "x.yaml:1:30", "at least one"},
      {"generation: {prompts: [{ids: [1, x]}]}\n", "x.yaml:1:34", "a token id is an integer"},
      {"generation: {prompts: [{random: 0}]}\n", "x.yaml:1:33", "at least 1"},
      {"generation: {prompts: [{txt: a}]}\n", "x.yaml:1:25", "known: text, ids, random"},
      {"generation: {stop: [a, -1]}\n", "x.yaml:1:24", "the token id -1"},
      {"generation: {stop: {a: 1}}\n", "x.yaml:1:20", "a text, a token id"},
      // sweeps
      {"sweep: [1]\n", "x.yaml:1:8", "sweep must be a map"},
      {"sweep: {dtype: f32}\n", "x.yaml:1:16", "an axis is a list of values, not the text 'f32'"},
      {"sweep: {dtype: []}\n", "x.yaml:1:16", "not an empty list"},
      {"sweep: {dtype: [f32, f32]}\n", "x.yaml:1:22", "stands twice; the first is at x.yaml:1:17"},
      {"sweep: {dtype: [f32, q8]}\n", "x.yaml:1:22", "must be auto, f32"},
      {"sweep: {budget: {bytes: [1]}}\n", "x.yaml:1:9", "one key written with dots"},
      {"sweep: {budget.gpu_layer_bugdet: [1]}\n", "x.yaml:1:9",
       "did you mean 'budget.gpu_layer_budget'?"},
      {"sweep: {budget.bytes: [1], budget.expert_slots: [1]}\n", "x.yaml:1:28",
       "exclude each other"},
      {"sweep: {budget.gpu_layer_budget: [1, 0]}\n", "x.yaml:1:38", "not 0"},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    const std::string message = input_error([&] { read(one.text); });
    CHECK_THAT(message, StartsWith(one.place));
    CHECK_THAT(message, Contains(one.message));
  }
}

TEST_CASE("what one key alone cannot show is checked for the experiment") {
  const test::ScratchDir dir;
  const std::string model = "model: {path: " + dir.path().string() + "}\n";
  const auto message = [&](const std::string& text) {
    return input_error([&] { experiment_of(text); });
  };
  CHECK_THAT(message("name: x\n"), Contains("no model; give model: {path: DIRECTORY}"));
  CHECK_THAT(message("model: {path: no/such}\n"), StartsWith("x.yaml:1:15: model 'no/such'"));
  CHECK_THAT(message(model + "generation: {greedy: true, temperature: 0.5}\n"),
             Contains("exclude each other"));
  CHECK_THAT(message(model + "generation: {greedy: false, temperature: 0}\n"),
             Contains("x.yaml:2:42: a temperature of 0 is greedy"));
  CHECK_THAT(message(model + "generation: {max_new_tokens: 2, min_new_tokens: 3}\n"),
             Contains("min_new_tokens 3 is beyond max_new_tokens 2"));
  CHECK_THAT(message(model + "device: {kind: cuda, link_gbps: 3}\n"),
             Contains("slows the cpu device down"));
  CHECK_THAT(message(model + "device: {machine: rtx3070}\n"), Contains("what sim imitates"));
  CHECK_THAT(message(model + "policy: {mapped: {depth: 2}}\n"),
             Contains("mapped has no parameters"));
  CHECK_THAT(message(model + "generation: {prompts: nothing.yaml}\n"),
             StartsWith("x.yaml:2:23: the file of prompts 'nothing.yaml' does not exist"));
  dir.write("p.yaml", "- a\n- {ids: [x]}\n");
  CHECK_THAT(message(model + "generation: {prompts: " + (dir.path() / "p.yaml").string() + "}\n"),
             Contains("p.yaml:2:"));
}

TEST_CASE("an experiment is typed, its defaults those of the table") {
  const test::ScratchDir dir;
  const std::string model = "model: {path: " + dir.path().string() + "}\n";
  const Experiment plain = experiment_of(model);
  CHECK(plain.name == "x");
  CHECK(std::get<CheckpointLocation>(plain.model).directory == dir.path());
  CHECK(plain.policy.name == "ring_prefetch");
  CHECK(std::holds_alternative<AutoBudget>(plain.budget));
  CHECK_FALSE(plain.dtype);
  CHECK(plain.device.kind == DeviceKind::cpu);
  CHECK(plain.generation.max_new_tokens == 128);
  CHECK(plain.generation.sampling.temperature == 0);
  CHECK(plain.inputs["generation"]["greedy"] == true);
  CHECK_FALSE(plain.generation.context);
  CHECK(plain.warmup == 1);
  CHECK(plain.repeats == 3);

  dir.write("p.yaml", "prompts: [one, {ids: [1, 2]}, {random: 7}]\n");
  const Experiment full = experiment_of(
      "name: n\nmodel: {synthetic: tiny-dense, seed: 4}\n"
      "device: {kind: cpu, memory_limit: 1.5GiB, link_gbps: 2.5}\n"
      "policy: {plugin: p, params: {depth: 2}}\nbudget: {bytes: 6e9}\ndtype: f16\n"
      "generation: {prompts: " +
      (dir.path() / "p.yaml").string() +
      ", greedy: false, seed: 9, "
      "top_k: 40, top_p: 0.9, min_p: 0.05, stop: ['###', 7], batch: 4, context: 512}\n");
  CHECK(std::get<SyntheticLocation>(full.model).seed == 4);
  CHECK(full.device.memory_limit == 3ull << 29);
  CHECK(full.device.link_gbps == 2.5);
  CHECK(full.policy.params == ParamValues{{"depth", "2"}});
  CHECK(std::get<ByteBudget>(full.budget).bytes == 6'000'000'000);
  CHECK(full.dtype == DType::f16);
  CHECK(full.generation.sampling.temperature == 1);
  CHECK(full.generation.sampling.top_k == 40);
  CHECK(full.generation.stop_texts == std::vector<std::string>{"###"});
  CHECK(full.generation.stop_ids == std::vector<std::int32_t>{7});
  CHECK(full.generation.context == 512u);
  REQUIRE(full.generation.prompts.size() == 3);
  CHECK(full.generation.prompts[2]["random"] == 7);
  // The record names the file and has a hash, not sixteen texts a line.
  CHECK(full.inputs["generation"]["prompts"]["count"] == 3);
  CHECK(full.inputs["generation"]["prompts"]["hash"].is_string());
  CHECK(full.inputs["budget"] == Json{{"bytes", 6'000'000'000}});
}

TEST_CASE("prompts with other content have another hash, and so another identity") {
  const test::ScratchDir dir;
  const auto hash = [&] {
    return experiment_of("model: {synthetic: tiny-dense}\ngeneration: {prompts: " +
                         (dir.path() / "p.yaml").string() + "}\n")
        .inputs["generation"]["prompts"]["hash"];
  };
  dir.write("p.yaml", "[one, two]\n");
  const Json first = hash();
  CHECK(hash() == first);
  dir.write("p.yaml", "[one, three]\n");
  CHECK(hash() != first);
}

TEST_CASE("help names every key with what may stand there and its default") {
  const std::string help = describe_keys();
  for (const Key& key : experiment_keys()) {
    CHECK_THAT(help, Contains(std::string(key.path) + ": "));
    CHECK_FALSE(key.help.empty());
    if (key.fallback.empty()) continue;
    YamlNode node;  // a default is itself a valid value
    node.kind = YamlNode::Kind::scalar;
    node.text = key.fallback;
    CHECK_NOTHROW(check_value(key, node));
  }
}

}  // namespace sluice
