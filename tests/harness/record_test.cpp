#include <string>

#include "harness/record.hpp"
#include "harness/table.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"

namespace sluice {
namespace {

struct Cell {
  std::string policy = "prefetch";
  int layers = 2;
  double rate = 10;
  std::string hash = "aa";
  std::string weights = "1-9 native";
  std::string model = "m";
  int max_new_tokens = 8;
};

Json make(const Cell& cell) {
  return {{"id", "x"},
          {"valid", true},
          {"reasons", Json::array()},
          {"inputs",
           {{"name", "n"},
            {"model", {{"path", cell.model}}},
            {"device", {{"kind", "cpu"}}},
            {"policy", {{"plugin", cell.policy}, {"params", Json::object()}}},
            {"budget", {{"gpu_layer_budget", cell.layers}}},
            {"generation", {{"max_new_tokens", cell.max_new_tokens}}}}},
          {"context", {{"model", cell.model}, {"weights", cell.weights}}},
          {"figures",
           {{"decode_tokens_per_second", cell.rate},
            {"tokens_hash", cell.hash},
            {"speedup_over_naive", nullptr},
            {"ttft_ms", 12.25},
            {"stall_ms_per_token", 1.0},
            {"h2d_gbps", 2.0},
            {"hits", 3},
            {"misses", 1}}}};
}

Json finished(const Cell& cell, const std::vector<Json>& earlier) {
  Json record = make(cell);
  finish_record(record, earlier);
  return record;
}

}  // namespace

TEST_CASE("the speed-up is over the naive cell with otherwise the same inputs") {
  const std::vector<Json> earlier{make({.policy = "naive_sync", .layers = 1, .rate = 2}),
                                  make({.policy = "naive_sync", .layers = 2, .rate = 4}),
                                  make({.policy = "naive_sync", .rate = 8, .max_new_tokens = 9})};
  CHECK(finished({}, earlier)["figures"]["speedup_over_naive"] == 2.5);
  CHECK(finished({.layers = 1}, earlier)["figures"]["speedup_over_naive"] == 5.0);
  CHECK(finished({.layers = 3}, earlier)["figures"]["speedup_over_naive"].is_null());
  CHECK(finished({.model = "other"}, earlier)["figures"]["speedup_over_naive"].is_null());
  CHECK(finished({.policy = "naive_sync"}, {})["figures"]["speedup_over_naive"] == 1.0);

  std::vector<Json> wrong = earlier;
  wrong[1]["valid"] = false;  // what is not valid is no measure of anything
  CHECK(finished({}, wrong)["figures"]["speedup_over_naive"].is_null());
}

TEST_CASE("tokens unlike those of the first cell over the same weights are not valid") {
  const std::vector<Json> earlier{
      make({.policy = "quantised", .hash = "zz", .weights = "1-9 int8"}),
      make({.policy = "resident", .hash = "aa"})};
  CHECK(finished({}, earlier)["valid"] == true);
  CHECK(finished({.layers = 30}, earlier)["valid"] == true);
  const Json differs = finished({.layers = 30, .hash = "bb"}, earlier);
  CHECK(differs["valid"] == false);
  CHECK_THAT(differs["reasons"][0].get<std::string>(),
             Contains("not those of resident") && Contains("hash bb, not aa"));
  // Other weights and other inputs have other tokens.
  CHECK(finished({.hash = "zz", .weights = "1-9 int8"}, earlier)["valid"] == true);
  CHECK(finished({.hash = "bb", .weights = "1-9 int8"}, earlier)["valid"] == false);
  CHECK(finished({.hash = "bb", .weights = "1-9 int4"}, earlier)["valid"] == true);
  CHECK(finished({.hash = "bb", .max_new_tokens = 9}, earlier)["valid"] == true);
  CHECK(finished({.hash = "bb", .model = "other"}, earlier)["valid"] == true);
}

TEST_CASE("the table has a column for what differs and says why a cell is not valid") {
  std::vector<Json> records{make({.policy = "naive_sync"}), make({.max_new_tokens = 16})};
  records[1]["valid"] = false;
  records[1]["reasons"] = {"it did not fit"};
  const std::string table = format_table(records);
  CHECK_THAT(table, Contains("max_new_tokens") && Contains("75.0%") && Contains("12.2"));
  CHECK_THAT(table, Contains("not valid: prefetch, budget 2: it did not fit"));
  CHECK_THAT(table, !Contains("path"));
  CHECK(format_table({}).empty());
}

}  // namespace sluice
