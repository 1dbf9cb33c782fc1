// Routing through the command line: recorded, replayed, replaced.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;
using test::Finished;
using test::run_sluice;
using test::ScratchDir;

const std::string kTrace = std::string(SLUICE_TEST_DATA) + "/routing/route_trace.csv";

const std::string kRecordedRun =
    "model: {synthetic: tiny-moe, routing: {zipf: 1.2}}\npolicy: expert_lru\n"
    "budget: {expert_slots: 12}\n"
    "generation: {prompts: [{random: 9}, {random: 4}], max_new_tokens: 12, ignore_eos: true}\n"
    "sweep: {policy: [resident, expert_lru, expert_lfu], budget.expert_slots: [6, 12]}\n";

}  // namespace

TEST_CASE("a profiled run replays to its own figures") {
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kRecordedRun), routing = dir.path() / "r.csv";
  const Finished run = run_sluice({"profile", yaml, "--routing", routing, "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json record = Json::parse(run.out);
  CHECK(record["valid"] == true);
  CHECK_THAT(record["context"]["routing"].get<std::string>(), StartsWith("synthetic: zipf 1.2"));
  CHECK(record["inputs"]["model"]["routing"]["stickiness"] == 0.25);
  CHECK(record["inputs"]["model"]["routing"]["foresight"] == 0.886);

  const Finished replay = run_sluice({"predict", yaml, "--routing", routing, "--json"});
  INFO(replay.err);
  REQUIRE(replay.exit_code == 0);
  const Json all = Json::parse(replay.out);
  REQUIRE(all.size() == 4);  // resident caches nothing
  const Json& same = all[1];
  CHECK(same["expert_slots"] == 12);
  CHECK(same["decode_passes"] == 2 * 11);
  for (const char* figure : {"loads", "h2d_bytes", "wasted", "refused", "misses"}) {
    CAPTURE(figure);
    CHECK(same["decode"][figure].get<std::uint64_t>() +
              same["prefill"][figure].get<std::uint64_t>() ==
          record["figures"][figure]);
  }
  for (const Json& one : all)
    CHECK(one["decode"]["hits"].get<double>() <= one["decode"]["best_hits"].get<double>());
}

TEST_CASE("a replay with guesses says that they are the best there can be") {
  const Finished run =
      run_sluice({"predict", "--routing", kTrace, "--policy", "expert_lru,expert_prefetch",
                  "--expert-slots", "600", "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json all = Json::parse(run.out);
  REQUIRE(all.size() == 2);
  CHECK(all[0]["notes"].empty());
  CHECK_THAT(all[1]["notes"][0].get<std::string>(), Contains("guesses at the next layer"));
  CHECK(all[1]["decode"]["hits"] > all[0]["decode"]["hits"]);
  CHECK(all[1]["decode"]["wasted"] == 0);
}

TEST_CASE("routing is replayed without an experiment, through lists of policies and slots") {
  const Finished run =
      run_sluice({"predict", "--routing", kTrace, "--policy", "expert_lru,expert_lfu", "--param",
                  "scope=global", "--expert-slots", "6,12"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.out, Contains("best possible") && Contains("expert_lfu scope=global"));
  CHECK_THAT(run.err, Contains("expert_lru scope=global: 6 slots hold less than the 288 experts"));
}

TEST_CASE("a replay says what it lacks") {
  const auto refusal = [](std::vector<std::string> more) {
    std::vector<std::string> all{"predict", "--routing", kTrace};
    all.insert(all.end(), more.begin(), more.end());
    const Finished run = run_sluice(all);
    CHECK(run.exit_code == 2);
    return run.err;
  };
  CHECK_THAT(refusal({}), Contains("--policy and --expert-slots"));
  CHECK_THAT(refusal({"--policy", "expert_lru"}), Contains("needs a budget"));
  CHECK_THAT(refusal({"--policy", "resident", "--expert-slots", "6"}), Contains("cache nothing"));
  CHECK_THAT(refusal({"--set", "model.synthetic=tiny-moe", "--policy", "expert_lru",
                      "--expert-slots", "6"}),
             Contains("48 layers of 128 experts; the model has 4 of 8"));
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kRecordedRun);
  const Finished dense = run_sluice({"run", yaml, "--set", "model.synthetic=tiny-dense"});
  CHECK(dense.exit_code == 2);
  CHECK_THAT(dense.err, Contains("has no experts"));
}

}  // namespace sluice
