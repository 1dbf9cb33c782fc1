// --audit, --trace, --decisions and replay, through the command line.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/device/trace_file.hpp"
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
using test::TraceFile;

const std::string kCpu = "device: {kind: cpu, link_gbps: 0.2}\n";
const std::string kExperiment =
    "model: {synthetic: tiny-dense}\n"
    "policy: {ring_prefetch: {depth: 1}}\nbudget: {gpu_layer_budget: 2}\n"
    "generation: {prompts: [{random: 7}, {random: 3}], max_new_tokens: 6, ignore_eos: true}\n"
    "measure: {warmup: 1, repeats: 1}\n";
// A machine whose link is slow enough to be waited for.
const std::string kSlowMachine =
    "name: slow\ndevice_memory: 1GiB\nhost_memory: 1GiB\nh2d_gbps: {1KiB: 1}\n"
    "d2h_gbps: {1KiB: 1}\nmemory_gbps: 10\nmatrix_tflops: 10\nhost_read_gbps: 10\nop_ns: 1\n"
    "copy_ns: 0\nenqueue_ns: 1\nevent_ns: 1\nsync_ns: 1\n";
const std::vector<std::string> kSimulated{"--device", "sim", "--machine", "rtx3070"};

// The one record of a run.
Json record_of(const Finished& done) {
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  return Json::parse(done.out);
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("a trace's totals are the record's figures") {
  for (const bool simulated : {false, true}) {
    CAPTURE(simulated);
    const ScratchDir dir;
    const std::string file = dir.path() / "t.json", machine = dir.write("slow.yaml", kSlowMachine);
    const std::string device = "device: {kind: sim, machine: " + machine + "}\n";
    const std::string yaml = dir.write("x.yaml", kExperiment + (simulated ? device : kCpu));
    const Json record = record_of(run_sluice({"run", yaml, "--json", "--trace", file}));
    CHECK(record["traced"] == true);
    CHECK(record["audited"] == false);
    CHECK(record["valid"] == true);
    const Json& figures = record["figures"];

    const TraceFile trace(file);
    CHECK(trace.tracks == std::vector<std::string>{"host", "compute", "copy"});
    const test::TraceSpan* setup = trace.section("setup");
    const test::TraceSpan* run = trace.section("run 1");
    REQUIRE(setup);
    REQUIRE(run);
    CHECK((trace.section("warm-up 1") == nullptr) == simulated);
    const auto h2d = figures["h2d_bytes"].get<std::uint64_t>();
    CHECK(h2d > 0);
    CHECK(trace.bytes("load", *run) == h2d - figures["cancelled_bytes"].get<std::uint64_t>());
    CHECK(trace.bytes("load", *setup) >= figures["kept_bytes"].get<std::uint64_t>());
    // Two prompts, one at a time: 2 batches, and 2 * (6 - 1) tokens that are not the first.
    const double stall_ms = 10 * figures["stall_ms_per_token"].get<double>() +
                            2 * figures["prefill_stall_ms"].get<double>();
    if (simulated) CHECK(stall_ms > 0);
    CHECK(static_cast<double>(trace.stall_ns(*run)) == Approx(stall_ms * 1e6).epsilon(1e-9));
    std::size_t named = 0;
    for (const test::TraceSpan& span : trace.spans) named += span.unit == "mlp of layer 0";
    CHECK(named > 6);
  }
}

TEST_CASE("each cell of a sweep has a trace and a log of its own, and is not the plain cell") {
  const ScratchDir dir;
  const std::string yaml = dir.write(
      "x.yaml", kExperiment + kCpu + "sweep: {policy: [naive_sync, prefetch, resident]}\n");
  const std::string out = dir.path() / "out";
  const std::vector<std::string> plain{"sweep", yaml, "--out", out, "--json"};
  const std::vector<std::string> watched =
      plain + std::vector<std::string>{"--audit", "--trace", dir.path() / "t.json", "--decisions",
                                       dir.path() / "d.jsonl"};
  const Json first = record_of(run_sluice(plain));
  const Json second = record_of(run_sluice(watched));
  REQUIRE(second.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(second[i]["id"] != first[i]["id"]);
    CHECK(second[i]["valid"] == true);
    CHECK(second[i]["audited"] == true);
    CHECK(first[i]["audited"] == false);
    CHECK(second[i]["figures"]["tokens_hash"] == first[i]["figures"]["tokens_hash"]);
    const std::string id = second[i]["id"];
    CHECK(fs::exists(dir.path() / ("t-" + id + ".json")));
    // What is resident decides nothing.
    CHECK(fs::exists(dir.path() / ("d-" + id + ".jsonl")) ==
          (second[i]["inputs"]["policy"]["plugin"] != "resident"));
  }
  CHECK(second[0]["figures"]["speedup_over_naive"] == 1.0);
}

TEST_CASE("recorded decisions come to the same on the device they are from and on another") {
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kExperiment + kCpu), log = dir.path() / "d.jsonl";
  for (const char* policy : {"naive_sync", "prefetch", "ring_prefetch"}) {
    CAPTURE(policy);
    record_of(run_sluice({"run", yaml, "--policy", policy, "--json", "--decisions", log}));
    for (const std::vector<std::string>& device : {std::vector<std::string>{}, kSimulated}) {
      const Finished replayed =
          run_sluice(std::vector<std::string>{"replay", log, "--audit"} + device);
      INFO(replayed.out << replayed.err);
      CHECK(replayed.exit_code == 0);
      CHECK_THAT(replayed.out, Contains("decisions  as recorded"));
      CHECK_THAT(replayed.out, Contains("counters   as recorded"));
      CHECK((replayed.out.find("tokens     as recorded") != std::string::npos) == device.empty());
    }
  }
}

TEST_CASE("a simulated run's decisions are played back with a budget that was found for it") {
  const ScratchDir dir;
  const std::string log = dir.path() / "d.jsonl";
  const Finished recorded =
      run_sluice(std::vector<std::string>{"generate", "--model", "synthetic:tiny-dense",
                                          "--prompt-ids", "1,2,3", "--max-new-tokens", "5",
                                          "--ignore-eos", "--decisions", log} +
                 kSimulated);
  INFO(recorded.err);
  REQUIRE(recorded.exit_code == 0);
  CHECK_THAT(bytes_of(log), Contains("{\"budget\":{\"bytes\":"));
  const Finished replayed = run_sluice({"replay", log, "--device", "cpu"});
  INFO(replayed.out << replayed.err);
  CHECK(replayed.exit_code == 0);
}

TEST_CASE("a run over experts is not played back where they are drawn") {
  const ScratchDir dir;
  const std::string log = dir.path() / "d.jsonl";
  const std::vector<std::string> generate{
      "generate",         "--model", "synthetic:tiny-moe", "--prompt-ids", "1,2,3",
      "--max-new-tokens", "5",       "--ignore-eos",       "--decisions",  log};
  const std::vector<std::string> cpu{"--device", "cpu"};
  for (const bool simulated : {false, true}) {
    CAPTURE(simulated);
    REQUIRE(run_sluice(generate + (simulated ? kSimulated : cpu)).exit_code == 0);
    CHECK(run_sluice({"replay", log}).exit_code == 0);
    const Finished other =
        run_sluice(std::vector<std::string>{"replay", log} + (simulated ? cpu : kSimulated));
    CHECK(other.exit_code == 2);
    CHECK_THAT(other.err, Contains("the model has experts, and a simulated device draws them"));
  }
}

TEST_CASE("a replay that comes to something else says so and fails") {
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kExperiment + kCpu), log = dir.path() / "d.jsonl";
  record_of(run_sluice({"run", yaml, "--json", "--decisions", log}));
  const std::string text = bytes_of(log);
  const auto replay_with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return run_sluice({"replay", dir.write("c.jsonl", changed.replace(at, from.size(), to))});
  };
  const Finished answer = replay_with("\"answer\":\"accepted\"", "\"answer\":\"no_slot\"");
  CHECK(answer.exit_code == 1);
  CHECK_THAT(answer.out, Contains("is answered accepted, in the record no_slot"));
  const Finished counters = replay_with("\"hits\":", "\"hits\":9");
  CHECK(counters.exit_code == 1);
  CHECK_THAT(counters.out, Contains("counters   {") && Contains("decisions  as recorded"));
  const Finished longer = replay_with("\"max_new_tokens\":6", "\"max_new_tokens\":7");
  CHECK(longer.exit_code == 1);
  const Finished torn =
      run_sluice({"replay", dir.write("t.jsonl", text.substr(0, text.size() / 2))});
  CHECK(torn.exit_code == 2);
  const Finished other = run_sluice({"replay", yaml});
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, Contains("x.yaml:1:1: not JSON"));
}

}  // namespace sluice
