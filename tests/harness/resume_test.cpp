#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;
using test::bytes_of;
using test::ScratchDir;

const char* const kSweep = R"(
model: {synthetic: tiny-dense, seed: 3}
device: {link_gbps: 1}
generation: {prompts: [{random: 5}, {random: 12}], max_new_tokens: 6}
measure: {warmup: 0, repeats: 1}
sweep:
  policy: [naive_sync, prefetch, ring_prefetch]
  budget.gpu_layer_budget: [1, 2, 3]
)";

// Each line of a finished sweep: id to tokens' hash.
std::map<std::string, std::string> records_of(const std::string& text) {
  REQUIRE(text.ends_with('\n'));
  std::map<std::string, std::string> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    CHECK(record["valid"] == true);
    CHECK(record["figures"]["speedup_over_naive"].is_number());
    const auto id = record["id"].get<std::string>();
    CHECK(records.emplace(id, record["figures"]["tokens_hash"].get<std::string>()).second);
  }
  return records;
}

}  // namespace

TEST_CASE("a sweep killed at any moment ends with the same cells, none twice and none torn") {
  const ScratchDir dir;
  const std::string yaml = dir.write("x.yaml", kSweep);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(test::run_sluice({"sweep", yaml, "--out", dir.path() / "whole"}).exit_code == 0);
  const auto whole_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::steady_clock::now() - begin)
                            .count();
  const auto expected = records_of(bytes_of(dir.path() / "whole" / "results.jsonl"));
  REQUIRE(expected.size() == 9);

  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  int killed = 0, round = 0;
  // Each round is a sweep of its own, killed up to four times before it may end.
  for (; killed < 20; ++round) {
    REQUIRE(round < 100);
    const std::string out = dir.path() / ("round" + std::to_string(round));
    for (int i = 0; i < 4; ++i) {
      std::uniform_int_distribution<long long> delay(0, whole_us);
      if (test::kill_sluice({"sweep", yaml, "--out", out},
                            std::chrono::microseconds(delay(random))))
        ++killed;
    }
    const test::Finished done = test::run_sluice({"sweep", yaml, "--out", out});
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
    CHECK(records_of(bytes_of(out + "/results.jsonl")) == expected);
  }
}

}  // namespace sluice
