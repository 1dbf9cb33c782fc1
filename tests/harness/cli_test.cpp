#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::bytes_of;
using test::Finished;
using test::run_sluice;
using test::ScratchDir;

const std::string kModels = std::string(SLUICE_TEST_DATA) + "/hf/";
const std::string kTestPlugins = std::string(SLUICE_TEST_BUILD_DIR) + "/test_plugins";

Json golden_case(const std::string& model, std::size_t i) {
  return Json::parse(bytes_of(kModels + model + "/golden.json"))["cases"][i];
}

std::string joined(const Json& ids) {
  std::string out;
  for (const Json& id : ids) out += (out.empty() ? "" : ",") + id.dump();
  return out;
}

}  // namespace

TEST_CASE("generate prints one JSON object with the reference's tokens") {
  const Json golden = golden_case("qwen3-tiny", 1);
  const Finished done = run_sluice({"generate", "--model", kModels + "qwen3-tiny", "--prompt-ids",
                                    joined(golden["prompt"]), "--max-new-tokens", "24", "--greedy",
                                    "--ignore-eos", "--dtype", "f32", "--policy", "ring_prefetch",
                                    "--gpu-layer-budget", "2", "--json", "--first-logits"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const Json object = Json::parse(done.out);
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  CHECK(keys == std::set<std::string>{"prompt_ids", "tokens", "text", "ttft_ms",
                                      "decode_tokens_per_second", "peak_device_bytes", "h2d_bytes",
                                      "stall_ms", "first_logits"});
  CHECK(object["prompt_ids"] == golden["prompt"]);
  CHECK(object["tokens"] == golden["greedy_fp32"]);
  CHECK(object["first_logits"].size() == 320);
  CHECK(object["h2d_bytes"].get<std::uint64_t>() > 0);
  CHECK(object["decode_tokens_per_second"].get<double>() > 0);
}

TEST_CASE("a model with experts gives the reference's tokens however few of them are cached") {
  const Json golden = golden_case("qwen3moe-tiny", 1);
  std::uint64_t moved = ~0ull;
  for (const char* slots : {"1", "9", "64"}) {
    const Finished done = run_sluice(
        {"generate", "--model", kModels + "qwen3moe-tiny", "--prompt-ids", joined(golden["prompt"]),
         "--max-new-tokens", "24", "--greedy", "--ignore-eos", "--dtype", "f32", "--policy",
         "prefetch", "--set", std::string("budget.expert_slots=") + slots, "--json"});
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
    const Json object = Json::parse(done.out);
    CHECK(object["tokens"] == golden["greedy_fp32"]);
    CHECK(object["h2d_bytes"].get<std::uint64_t>() <= moved);
    moved = object["h2d_bytes"].get<std::uint64_t>();
  }
  CHECK(moved > 0);
}

TEST_CASE("forced ids are fed and the choices reported") {
  const Json golden = golden_case("qwen3-tiny", 0);
  const Finished done = run_sluice({"generate", "--model", kModels + "qwen3-tiny", "--prompt-ids",
                                    joined(golden["prompt"]), "--max-new-tokens", "24",
                                    "--ignore-eos", "--dtype", "f32", "--policy", "resident",
                                    "--force-ids", joined(golden["greedy_fp32"]), "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(Json::parse(done.out)["tokens"] == golden["greedy_fp32"]);
}

TEST_CASE("wrong input ends with exit code 2 and a message that names it") {
  const ScratchDir dir;
  const std::string out = dir.path() / "out", yaml = dir.path() / "x.yaml";
  const std::string good = "model: {path: " + kModels + "qwen3-tiny}\n";
  const std::string prompts = "generation: {prompts: [{ids: [1, 2, 3]}], max_new_tokens: 4}\n";
  struct Case {
    std::string text;
    const char* message;
  };
  const std::vector<Case> cases{
      {good + "budgets: {bytes: 3}\n", "x.yaml:2:1: unknown key 'budgets'; did you mean 'budget'?"},
      {good + prompts + "dtype: 16\n", "x.yaml:3:8: dtype must be auto, f32, bf16 or f16"},
      {good + prompts + "budget: {gpu_layer_budget: 0}\n", "x.yaml:3:28: "},
      {good + prompts + "budget: {gpu_layer_budget: -1}\n", "x.yaml:3:28: "},
      {"model: {path: " + dir.path().string() + "/none}\n" + prompts, "x.yaml:1:15: model"},
      {"model: {synthetic: tiny-dens}\n" + prompts, "tiny-dense"},
      {"model: {path: qwen3-8b}\n" + prompts, "{synthetic: qwen3-8b} in an experiment"},
      {good, "no prompts"},
      {good + "generation: {prompts: [hello]}\n", "no tokenizer"},
      {good + "generation: {prompts: [{ids: [320]}]}\n", "320"},
      {good + "generation: {prompts: [{random: 90}], context: 100, max_new_tokens: 11}\n",
       "90 tokens, and 11 new ones make 101, beyond the context of 100"},
      {good + "generation: {prompts: [{random: 4090}], max_new_tokens: 7}\n", "4096 positions"},
      {good + prompts + "policy: ring_prefech\n", "ring_prefetch"},
      {good + prompts + "policy: {ring_prefetch: {dept: 2}}\n", "depth"},
      {good + prompts + "policy: {ring_prefetch: {depth: 100000}}\n", "x.yaml:3:9: "},
      {good + prompts + "device: {kind: sim}\n", "sim needs a device.machine"},
      {good + prompts + "device: {kind: sim, machine: rtx307}\n",
       "x.yaml:3:30: no machine 'rtx307'"},
      {good + prompts + "sweep: {sweep: [1]}\n", "x.yaml:3:9: a sweep is no axis of itself"},
      {"model: {path: x.yaml}\n" + prompts, "x.yaml:1:15: model 'x.yaml' is no directory"},
      {"a: [\n", "x.yaml:"},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    dir.write("x.yaml", one.text);
    for (const char* command : {"run", "sweep"}) {
      const Finished done = run_sluice({command, yaml, "--out", out});
      CHECK(done.exit_code == 2);
      CHECK(done.out.empty());
      CHECK_THAT(done.err, StartsWith("sluice: ") && Contains(one.message));
      CHECK_FALSE(fs::exists(out));
    }
  }
}

TEST_CASE("options are checked as a file's values are") {
  const std::string model = kModels + "qwen3-tiny";
  struct Case {
    std::vector<std::string> more;
    std::string message;
  };
  const std::vector<Case> cases{
      {{"--gpu-layer-budget", "0"}, "--gpu-layer-budget 0: budget.gpu_layer_budget must be"},
      {{"--gpu-layer-budget", "-1"}, "not -1"},
      {{"--gpu-layer-budget", "two"}, "not the text 'two'"},
      {{"--policy", "prefech"}, "prefetch"},
      {{"--param", "depth"}, "--param depth: must be KEY=VALUE"},
      {{"--set", "generation.max_new_token=4"}, "did you mean 'generation.max_new_tokens'?"},
      {{"--set", "sweep.dtype=[f32]"}, "nothing to sweep"},
      {{"--dtype", "f61"}, "must be auto, f32, bf16 or f16"},
      {{"--device", "cuda"}, "cpu"},
      {{"--temperature", "warm"}, "--temperature warm: "},
      {{"--max-new-tokens", "5000"}, "positions"},
      {{"--prompt", "text too"}, "one of them"},
      {{"--stop", "###"}, "no tokenizer"},
      {{"--stop", ""}, "--stop: an empty text"},
      {{"--chat"}, "no tokenizer"},
      {{"--top-k", "5"}, "--top-k 5: generation.top_k changes nothing while decoding is greedy"},
      {{"--link-gbps", "1e-20"}, "0.001 to 1000000"},
      {{"--seed", "9223372036854775807"}, "0 to 9.2e+18"},
      {{"--set", "model.synthetic=tiny-dense"},
       "--model " + model + ": model.path is given already, by --set model.synthetic=tiny-dense"},
      {{"--set", "budget.bytes=200000", "--gpu-layer-budget", "2"}, "given already"},
      {{"--max-new-tokens", "5", "--set", "generation.max_new_tokens=2"}, "given already"},
      {{"--policy", "ring_prefetch", "--param", "depth=1", "--param", "depth=2"},
       "--param depth=2: the parameter depth is given already, as 1"},
      {{"--no-such-option"}, "--no-such-option"},
      {{"--plugin-dir", "/nowhere/at/all"}, "/nowhere/at/all"},
  };
  for (const Case& one : cases) {
    std::vector<std::string> arguments{"generate", "--model", model, "--prompt-ids", "1,2"};
    arguments.insert(arguments.end(), one.more.begin(), one.more.end());
    if (one.more[0] == "--chat")
      arguments = {"generate", "--model", model, "--prompt", "x", "--chat"};
    INFO(arguments.back());
    const Finished done = run_sluice(arguments);
    CHECK(done.exit_code == 2);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, Contains(one.message));
  }
  CHECK(run_sluice({}).exit_code == 2);
  CHECK(run_sluice({"sweep"}).exit_code == 2);
  CHECK(run_sluice({"generate", "--model", model}).exit_code == 2);
  CHECK(run_sluice({"--help"}).exit_code == 0);
  const Finished keys = run_sluice({"run", "--help-keys"});
  CHECK(keys.exit_code == 0);
  CHECK_THAT(keys.out, Contains("budget.gpu_layer_budget: an integer"));
}

TEST_CASE("a broken model is named and leaves nothing behind") {
  const ScratchDir dir;
  const fs::path model = dir.path() / "model", out = dir.path() / "out";
  dir.write("x.yaml",
            "model: {path: model}\ngeneration: {prompts: [{ids: [1]}], max_new_tokens: 2}\n");
  const auto fresh = [&] {
    fs::remove_all(model);
    fs::copy(kModels + "qwen3-tiny", model);
  };
  const auto fails = [&](const char* message) {
    const Finished done = run_sluice({"sweep", dir.path() / "x.yaml", "--out", out});
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, Contains(message));
    CHECK_FALSE(fs::exists(out));
  };
  fresh();
  fs::resize_file(model / "model.safetensors", fs::file_size(model / "model.safetensors") - 100);
  fails("model.safetensors");
  fresh();
  Json config = Json::parse(bytes_of(model / "config.json"));
  config.erase("rms_norm_eps");
  dir.write("model/config.json", config.dump());
  fails("rms_norm_eps");
  fresh();
  config["rms_norm_eps"] = 1e-6;
  config["architectures"] = {"ElmanForCausalLM"};
  dir.write("model/config.json", config.dump());
  fails("ElmanForCausalLM");
  fresh();
  dir.write("model/tokenizer.json", "{\"model\": 3}");
  fails("tokenizer.json");
  fresh();
  fs::remove(model / "model.safetensors");
  fails("model.safetensors");
}

TEST_CASE("a memory limit that is too small says what would fit") {
  const ScratchDir dir;
  const std::string out = dir.path() / "out";
  dir.write("x.yaml",
            "model: {synthetic: tiny-dense}\nbudget: {gpu_layer_budget: 6}\n"
            "generation: {prompts: [{random: 4}], max_new_tokens: 4, context: 256}\n"
            "measure: {warmup: 0, repeats: 1}\n"
            "sweep: {budget.gpu_layer_budget: [1, 6]}\n");
  const std::string yaml = dir.path() / "x.yaml";
  // Room for the context and some layers, but not for all six.
  const Finished info =
      run_sluice({"inspect", "synthetic:tiny-dense", "--context", "256", "--json"});
  INFO(info.err);
  REQUIRE(info.exit_code == 0);
  const Json budgets = Json::parse(info.out)["budgets"];
  const auto limit = std::to_string(budgets.back()["device_bytes"].get<std::uint64_t>() -
                                    budgets[0]["slot_bytes"].get<std::uint64_t>());
  const Finished run =
      run_sluice({"run", yaml, "--out", out, "--set", "device.memory_limit=" + limit});
  CHECK(run.exit_code == 2);
  CHECK_THAT(run.err,
             Contains("too small") && Contains("a gpu_layer_budget of up to") && Contains("fits"));
  CHECK_FALSE(fs::exists(out));
  // In a sweep it is a record, and the sweep goes on.
  const Finished sweep =
      run_sluice({"sweep", yaml, "--out", out, "--set", "device.memory_limit=" + limit, "--json"});
  INFO(sweep.err);
  REQUIRE(sweep.exit_code == 0);
  const Json records = Json::parse(sweep.out);
  REQUIRE(records.size() == 2);
  CHECK(records[0]["valid"] == true);
  CHECK(records[1]["valid"] == false);
  CHECK_THAT(records[1]["reasons"][0].get<std::string>(), Contains("too small"));
  CHECK(records[1]["figures"].contains("decode_tokens_per_second"));
  // The budget that the message names does fit, and so does `auto`.
  const std::string text = run.err.substr(run.err.find("of up to ") + 9);
  const std::string fitting = text.substr(0, text.find(' '));
  for (const std::string& budget : {fitting, std::string("auto")}) {
    const Finished fits = run_sluice({"run", yaml, "--gpu-layer-budget", budget, "--set",
                                      "device.memory_limit=" + limit, "--json"});
    INFO(fits.err);
    REQUIRE(fits.exit_code == 0);
    const Json record = Json::parse(fits.out);
    CHECK(record["context"]["shape"]["gpu_layer_budget"].dump() == fitting);
    CHECK(record["figures"]["peak_process_bytes"].is_null());
  }
  CHECK(run_sluice({"run", yaml, "--set", "device.memory_limit=4kB"}).exit_code == 2);
}

TEST_CASE("mapped reads every weight where it lies and takes none onto the device") {
  const ScratchDir dir;
  dir.write("x.yaml",
            "model: {synthetic: tiny-dense}\n"
            "generation: {prompts: [{random: 4}], max_new_tokens: 4, context: 64}\n"
            "measure: {warmup: 0, repeats: 1}\nsweep: {policy: [resident, mapped, naive_sync]}\n");
  const Finished sweep =
      run_sluice({"sweep", dir.path() / "x.yaml", "--out", dir.path() / "out", "--json"});
  INFO(sweep.err);
  REQUIRE(sweep.exit_code == 0);
  const Json records = Json::parse(sweep.out);
  const Json &resident = records[0]["figures"], &mapped = records[1]["figures"];
  REQUIRE(records[1]["inputs"]["policy"]["plugin"] == "mapped");
  CHECK(records[1]["valid"] == true);
  CHECK(mapped["tokens_hash"] == resident["tokens_hash"]);
  CHECK(mapped["kept_bytes"] == 0);
  CHECK(mapped["h2d_bytes_per_token"] == resident["kept_bytes"]);
  CHECK(mapped["hits"] == 0);
  // All that the device holds is the context, so a limit of exactly that much is enough.
  const auto context = mapped["peak_device_bytes"].get<std::uint64_t>();
  CHECK(context < resident["peak_device_bytes"].get<std::uint64_t>() -
                      resident["kept_bytes"].get<std::uint64_t>() + 256 * 20);
  for (const bool enough : {true, false}) {
    const Finished run =
        run_sluice({"run", dir.path() / "x.yaml", "--policy", "mapped", "--json", "--set",
                    "device.memory_limit=" + std::to_string(context - (enough ? 0 : 1))});
    CHECK(run.exit_code == (enough ? 0 : 2));
    if (!enough) CHECK_THAT(run.err, Contains("too small") && !Contains("gpu_layer_budget"));
  }
}

TEST_CASE("weights that may not be pinned pass through the ring, and the record says so") {
  const ScratchDir dir;
  dir.write("x.yaml",
            "model: {synthetic: tiny-dense}\npolicy: ring_prefetch\nbudget: {gpu_layer_budget: 2}\n"
            "generation: {prompts: [{random: 4}], max_new_tokens: 4}\n"
            "measure: {warmup: 0, repeats: 1}\n"
            "sweep: {device.pinned_limit: [1GiB, 2MiB]}\n");
  const Finished sweep =
      run_sluice({"sweep", dir.path() / "x.yaml", "--out", dir.path() / "out", "--json"});
  INFO(sweep.err);
  REQUIRE(sweep.exit_code == 0);
  const Json records = Json::parse(sweep.out);
  REQUIRE(records.size() == 2);
  const Json &whole = records[0]["figures"], &part = records[1]["figures"];
  CHECK(records[1]["valid"] == true);
  CHECK(whole["unpinned_bytes"] == 0);
  CHECK(part["unpinned_bytes"].get<std::uint64_t>() > 0);
  CHECK(part["tokens_hash"] == whole["tokens_hash"]);
  CHECK(part["h2d_bytes"] == whole["h2d_bytes"]);
  const Finished mapped = run_sluice(
      {"run", dir.path() / "x.yaml", "--policy", "mapped", "--set", "device.pinned_limit=2MiB"});
  CHECK(mapped.exit_code == 2);
  CHECK_THAT(mapped.err, Contains("mapped needs all weights in pinned memory"));
}

TEST_CASE("a sweep over budgets runs what has no budget once") {
  const ScratchDir dir;
  dir.write("x.yaml",
            "model: {synthetic: tiny-dense}\n"
            "generation: {prompts: [{random: 4}], max_new_tokens: 2}\n"
            "measure: {warmup: 0, repeats: 1}\n"
            "sweep: {policy: [resident, mapped, prefetch], budget.gpu_layer_budget: [1, 2]}\n");
  const Finished sweep =
      run_sluice({"sweep", dir.path() / "x.yaml", "--out", dir.path() / "out", "--json"});
  INFO(sweep.err);
  REQUIRE(sweep.exit_code == 0);
  std::map<std::string, int> cells;
  for (const Json& record : Json::parse(sweep.out))
    ++cells[record["inputs"]["policy"]["plugin"].get<std::string>()];
  CHECK(cells == std::map<std::string, int>{{"mapped", 1}, {"prefetch", 2}, {"resident", 1}});
}

TEST_CASE("run writes results as sweep does, of the experiment without its sweep") {
  const ScratchDir dir;
  const std::string out = dir.path() / "out";
  dir.write("x.yaml",
            "model: {synthetic: tiny-dense}\npolicy: prefetch\nbudget: {gpu_layer_budget: 2}\n"
            "generation: {prompts: [{random: 4}, {random: 9}], max_new_tokens: 4}\n"
            "measure: {warmup: 1, repeats: 2}\nsweep: {budget.gpu_layer_budget: [1, 2, 3]}\n");
  const Finished done = run_sluice({"run", dir.path() / "x.yaml", "--out", out, "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const std::string line = bytes_of(dir.path() / "out" / "results.jsonl");
  const Json record = Json::parse(line);
  CHECK(Json::parse(done.out) == record);
  for (const char* key : {"id", "valid", "reasons", "inputs", "context", "figures"})
    CHECK(record.contains(key));
  for (const char* figure : {"prefill_ms", "ttft_ms", "prefill_tokens_per_second",
                             "decode_tokens_per_second", "peak_device_bytes", "h2d_bytes_per_token",
                             "h2d_gbps", "link_percent", "stall_ms_per_token", "hits", "misses",
                             "wasted", "refused", "pinned_bytes", "tokens_hash"}) {
    INFO(figure);
    CHECK_FALSE(record["figures"][figure].is_null());
  }
  CHECK(record["figures"]["speedup_over_naive"].is_null());
  for (const char* key : {"machine", "build", "date", "model", "plugin", "device"})
    CHECK(record["context"].contains(key));
  CHECK(record["inputs"]["budget"]["gpu_layer_budget"] == 2);

  const Finished again = run_sluice({"run", dir.path() / "x.yaml", "--out", out, "--json"});
  CHECK(again.exit_code == 0);
  CHECK(bytes_of(dir.path() / "out" / "results.jsonl") == line);
}

TEST_CASE("whatever a policy throws, and whenever, ends the run under its name") {
  for (const char* odd : {"false", "true"})
    for (const std::string hook :
         {"factory", "layout", "transfer", "transfer_again", "before", "victim", "place"}) {
      INFO(hook << ", odd " << odd);
      const Finished done = run_sluice(
          {"generate", "--model", "synthetic:tiny-dense", "--prompt-ids", "1,2", "--max-new-tokens",
           "4", "--gpu-layer-budget", "2", "--plugin-dir", kTestPlugins, "--policy", "throws",
           "--param", "hook=" + hook, "--param", std::string("odd=") + odd});
      CHECK(done.exit_code == 1);
      CHECK_THAT(done.err, Contains("throws"));
      CHECK_THAT(done.err,
                 Contains(odd == std::string("true") ? "something that is not a std::exception"
                                                     : "thrown from " + hook));
    }
}

TEST_CASE("a policy that throws is a record in a sweep and a failure of a run") {
  const ScratchDir dir;
  dir.write(
      "x.yaml",
      "model: {synthetic: tiny-dense}\nbudget: {gpu_layer_budget: 2}\n"
      "policy: {throws: {hook: before}}\n"
      "generation: {prompts: [{random: 4}], max_new_tokens: 4}\n"
      "measure: {warmup: 0, repeats: 1}\n"
      "sweep: {policy: [{throws: {hook: [factory, layout, before, victim]}}, prefetch, chaos]}\n");
  const std::string yaml = dir.path() / "x.yaml", out = dir.path() / "out";
  const Finished run = run_sluice({"run", yaml, "--plugin-dir", kTestPlugins, "--out", out});
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.err, Contains("throws") && Contains("thrown from before"));
  CHECK_FALSE(fs::exists(out));

  const Finished sweep =
      run_sluice({"sweep", yaml, "--plugin-dir", kTestPlugins, "--out", out, "--json"});
  INFO(sweep.err);
  REQUIRE(sweep.exit_code == 0);
  const Json records = Json::parse(sweep.out);
  REQUIRE(records.size() == 6);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(records[i]["valid"] == false);
    CHECK_THAT(records[i]["reasons"][0].get<std::string>(), Contains("throws"));
  }
  CHECK(records[4]["valid"] == true);
  CHECK(records[5]["valid"] == true);  // whatever it wishes, tokens are right
  CHECK(records[5]["figures"]["refused"].get<int>() > 0);
  CHECK(records[5]["figures"]["tokens_hash"] == records[4]["figures"]["tokens_hash"]);
}

TEST_CASE("tokenize turns texts to ids and back") {
  const ScratchDir dir;
  const std::string texts = R"(["hello world", "", "naïve 日本 🙂", "a\n\n b"])";
  const std::string tokenizer = std::string(SLUICE_TEST_BUILD_DIR) + "/tests/qwen3-tokenizer";
  const Finished ids = run_sluice({"tokenize", "--tokenizer", tokenizer}, texts);
  INFO(ids.err);
  REQUIRE(ids.exit_code == 0);
  const Json encoded = Json::parse(ids.out);
  REQUIRE(encoded.size() == 4);
  CHECK(encoded[1].empty());
  const Finished back = run_sluice({"tokenize", "--tokenizer", tokenizer, "--decode"}, ids.out);
  CHECK(Json::parse(back.out) == Json::parse(texts));

  for (const char* wrong : {"", "{}", "[1]", "[\"a\"", "nonsense"}) {
    const Finished bad = run_sluice({"tokenize", "--tokenizer", tokenizer}, wrong);
    CHECK(bad.exit_code == 2);
    CHECK_THAT(bad.err, Contains("standard input"));
  }
  CHECK(run_sluice({"tokenize", "--tokenizer", tokenizer, "--decode"}, "[[-1]]").exit_code == 2);
  CHECK(run_sluice({"tokenize", "--tokenizer", "/nowhere"}, "[]").exit_code == 2);
}

TEST_CASE("synthesize writes a checkpoint that gives the same tokens as the shape itself") {
  const ScratchDir dir;
  const std::string to = dir.path() / "model";
  const Finished done = run_sluice({"synthesize", "tiny-dense", "--to", to, "--seed", "5"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const auto tokens = [&](const std::string& model) {
    return Json::parse(run_sluice({"generate", "--model", model, "--prompt-ids", "1,2,3",
                                   "--max-new-tokens", "8", "--ignore-eos", "--json"})
                           .out)["tokens"];
  };
  const Json expected = tokens("synthetic:tiny-dense:5");
  CHECK(tokens(to) == expected);
  CHECK(tokens("synthetic:tiny-dense:6") != expected);
  CHECK(run_sluice({"synthesize", "tiny-dense", "--to", to}).exit_code == 2);  // it is full
  const Finished unknown = run_sluice({"synthesize", "tiny-dens", "--to", dir.path() / "other"});
  CHECK(unknown.exit_code == 2);
  CHECK_THAT(unknown.err, Contains("tiny-dense"));
  CHECK_FALSE(fs::exists(dir.path() / "other"));
}

TEST_CASE("inspect counts experts one by one") {
  const Finished done = run_sluice({"inspect", "synthetic:qwen3-30b-a3b", "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  std::map<std::string, std::pair<int, std::uint64_t>> units;
  const Json report = Json::parse(done.out);
  for (const Json& unit : report["units"])
    units[unit["kind"].get<std::string>()] = {unit["count"].get<int>(),
                                              unit["largest_bytes"].get<std::uint64_t>()};
  CHECK(units["expert"] == std::pair(48 * 128, std::uint64_t{2} * 3 * 768 * 2048));
  CHECK(units["attention"].first == 48);
  CHECK(units.count("mlp") == 0);
}

TEST_CASE("inspect shows units and sizes that add up") {
  const Finished done = run_sluice({"inspect", kModels + "qwen3-tiny", "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const Json report = Json::parse(done.out);
  // q, k, v, o; q_norm, k_norm, input norm of a layer in bf16; and gate, up, down, norm.
  const std::uint64_t attention = 2 * (64 * (4 + 2 + 2 + 4) * 32 + 32 + 32 + 64);
  const std::uint64_t mlp = 2 * (3 * 64 * 160 + 64);
  std::map<std::string, std::uint64_t> totals;
  for (const Json& unit : report["units"])
    totals[unit["kind"].get<std::string>()] = unit["total_bytes"].get<std::uint64_t>();
  CHECK(totals == std::map<std::string, std::uint64_t>{{"embedding", 2 * 320 * 64},
                                                       {"attention", 5 * attention},
                                                       {"mlp", 5 * mlp},
                                                       {"head", 2 * (320 * 64 + 64)}});
  // Slots begin at multiples of 256 bytes.
  const std::uint64_t layer = (attention + 255) / 256 * 256 + (mlp + 255) / 256 * 256;
  std::vector<int> layers;
  for (const Json& budget : report["budgets"]) {
    layers.push_back(budget["gpu_layer_budget"].get<int>());
    CHECK(budget["slot_bytes"] == layers.back() * layer);
    CHECK(budget["device_bytes"] == budget["slot_bytes"].get<std::uint64_t>() + totals["head"] +
                                        report["context_bytes"].get<std::uint64_t>());
  }
  CHECK(layers == std::vector<int>{1, 2, 4, 5});
  CHECK(run_sluice({"inspect", kModels + "qwen3-tiny"}).exit_code == 0);
  CHECK(run_sluice({"inspect", "synthetic:qwen3-8b"}).exit_code == 0);
  CHECK(run_sluice({"inspect", "/nowhere"}).exit_code == 2);
}

}  // namespace sluice
