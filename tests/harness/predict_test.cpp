// Experiments on a simulated machine, through the command line.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Finished;
using test::run_sluice;
using test::ScratchDir;

const std::string kTiny = std::string(SLUICE_TEST_DATA) + "/hf/qwen3-tiny";

// One layer of tiny-dense takes 10 times as long over this link as through this memory.
const std::string kMachine =
    "name: slow\ndevice_memory: 1GiB\nhost_memory: 1GiB\nh2d_gbps: {1KiB: 1}\n"
    "d2h_gbps: {1KiB: 1}\nmemory_gbps: 10\nmatrix_tflops: 10\nhost_read_gbps: 10\nop_ns: 1\n"
    "copy_ns: 0\nenqueue_ns: 1\nevent_ns: 1\nsync_ns: 1\n";

const std::string kSweep =
    "model: {synthetic: tiny-dense}\ndevice: {kind: cpu, link_gbps: 2}\n"
    "generation: {prompts: [{random: 7}], max_new_tokens: 6}\n"
    "sweep:\n  policy: [naive_sync, ring_prefetch]\n  budget.gpu_layer_budget: [1, 4]\n"
    "  device.link_gbps: [1, 2]\n";

}  // namespace

TEST_CASE("predict gives a sweep's records, marked, with what bounds them") {
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kSweep), out = dir.path() / "out";
  const std::string machine = dir.write("slow.yaml", kMachine);
  const Finished done = run_sluice({"predict", yaml, "--machine", machine, "--out", out, "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(fs::exists(fs::path(out) / "results.jsonl"));
  const Json records = Json::parse(done.out);
  REQUIRE(records.size() == 4);  // the link is the machine's, so there is no axis of links
  for (const Json& record : records) {
    INFO(record.dump());
    CHECK(record["valid"] == true);
    CHECK(record["predicted"] == true);
    CHECK(record["inputs"]["device"]["kind"] == "sim");
    CHECK(record["inputs"]["measure"] == Json({{"warmup", 0}, {"repeats", 1}}));
    CHECK(record["context"]["simulated"]["memory_gbps"] == 10.0);
    CHECK(record["sample"].is_null());
    const Json& figures = record["figures"];
    CHECK(figures["tokens_hash"].is_null());
    CHECK(figures["process_peak_rss_bytes"].is_null());
    CHECK(figures["link_gbps"] == 1.0);
    CHECK(figures["decode_bound"] == "link");
    CHECK(figures["decode_at_best"].get<double>() >= 1.0);
    CHECK(figures["decode_busy_percent"]["link"].get<double>() > 50);
    CHECK(figures["speedup_over_naive"].is_number());
  }
  // Four layers of six: less is streamed. The link never rests.
  CHECK(records[3]["figures"]["decode_tokens_per_second"].get<double>() >
        1.5 * records[2]["figures"]["decode_tokens_per_second"].get<double>());
  CHECK(records[3]["figures"]["decode_at_best"].get<double>() < 1.02);

  const Finished again =
      run_sluice({"predict", yaml, "--machine", machine, "--out", out, "--json"});
  CHECK(again.out == done.out);  // found, not run
  const Finished table = run_sluice({"predict", yaml, "--machine", machine});
  CHECK_THAT(table.out, Contains("bound by") && Contains("x at best") && Contains("link"));
}

TEST_CASE("a predicted cell is another cell once its machine's figures change") {
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kSweep);
  const std::string machine = dir.write("slow.yaml", kMachine);
  const auto ids = [&] {
    const Finished done = run_sluice({"predict", yaml, "--machine", machine, "--json"});
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
    return Json::parse(done.out)[0]["id"].get<std::string>();
  };
  const std::string before = ids();
  CHECK(ids() == before);
  std::string faster = kMachine;
  faster.replace(faster.find("memory_gbps: 10"), 15, "memory_gbps: 11");
  dir.write("slow.yaml", faster);
  CHECK(ids() != before);
}

TEST_CASE("run and generate work on a simulated device, chat refuses") {
  const ScratchDir dir;
  const std::string machine = dir.write("slow.yaml", kMachine);
  const Finished run =
      run_sluice({"run", dir.write("x.yaml", kSweep), "--set", "device.link_gbps=1", "--device",
                  "sim", "--machine", machine, "--json"});
  CHECK(run.exit_code == 2);
  CHECK_THAT(run.err, Contains("sim has a link of its own"));
  const std::vector<std::string> generate{
      "generate", "--model",  kTiny, "--prompt-ids", "1,2,3", "--max-new-tokens",
      "5",        "--device", "sim", "--machine",    machine, "--gpu-layer-budget",
      "2"};
  const Finished text = run_sluice(generate);
  INFO(text.err);
  CHECK(text.exit_code == 0);
  CHECK(text.out.empty());
  CHECK_THAT(text.err, Contains("predicted for slow: 5 tokens"));
  std::vector<std::string> with_json = generate;
  with_json.emplace_back("--json");
  const Json object = Json::parse(run_sluice(with_json).out);
  CHECK(object["tokens"].is_null());
  CHECK(object["text"].is_null());
  CHECK(object["predicted"] == true);
  CHECK(object["decode_tokens_per_second"].get<double>() > 0);
  const Finished chat =
      run_sluice({"chat", "--model", kTiny, "--device", "sim", "--machine", machine}, "hello\n");
  CHECK(chat.exit_code == 2);
}

TEST_CASE("what a simulated machine cannot hold is not valid there") {
  const ScratchDir dir;
  const std::string yaml =
      dir.write("x.yaml",
                "model: {synthetic: qwen3-32b}\npolicy: ring_prefetch\n"
                "generation: {prompts: [{random: 8}], max_new_tokens: 2, context: 64}\n"
                "sweep: {device.machine: [rtx5090, rtx3070], budget.gpu_layer_budget: [1, 64]}\n");
  const Finished done = run_sluice({"predict", yaml, "--json"});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const Json records = Json::parse(done.out);
  REQUIRE(records.size() == 4);
  CHECK(records[0]["valid"] == true);  // 65 GB of weights, wherever this test runs
  CHECK(records[0]["figures"]["pinned_bytes"].get<std::uint64_t>() > 60ull << 30);
  CHECK_THAT(records[1]["reasons"][0].get<std::string>(), Contains("the memory limit of"));
  CHECK_THAT(records[2]["reasons"][0].get<std::string>(), Contains("of host memory; rtx3070 has"));
}

}  // namespace sluice
