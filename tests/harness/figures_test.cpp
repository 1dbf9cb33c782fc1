#include "harness/figures.hpp"
#include "harness/stop_text.hpp"
#include "harness/value.hpp"
#include "harness/verdict.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"

namespace sluice {
namespace {

// Two requests in one batch: 11 and 5 tokens, the first after 100 ms.
RepeatFigures two_requests() {
  RepeatFigures r;
  r.requests = 2;
  r.batches = 1;
  r.prompt_tokens = 50;
  r.tokens = 16;
  r.prefill_ns = 100'000'000;
  r.decode_ns = 1'000'000'000;
  r.ttft_ns = 2 * 100'000'000 + 4'000'000;  // 4 ms of tokenising
  r.sequence_ns = 1'000'000'000 + 400'000'000;
  r.prefill_stall_ns = 30'000'000;
  r.decode_stall_ns = 280'000'000;
  r.prefill.h2d_bytes = 300'000'000;
  r.decode.h2d_bytes = 800'000'000;
  r.prefill.hits = 1;
  r.decode.hits = 2;
  r.decode_passes = 10;
  r.decode_rows = 16;  // two of them after a stop
  return r;
}

}  // namespace

TEST_CASE("figures are what their definitions give by hand") {
  const RepeatFigures r = two_requests();
  const auto f = make_figures({&r, 1}, 4.0);
  CHECK(f["prefill_ms"] == 100.0);
  CHECK(f["ttft_ms"] == 102.0);
  CHECK(f["prefill_tokens_per_second"] == 500.0);
  CHECK(f["decode_tokens_per_second"] == 10.0);             // (10 + 4) / (1.0 + 0.4)
  CHECK(f["decode_throughput_tokens_per_second"] == 14.0);  // (10 + 4) / 1.0
  CHECK(f["h2d_bytes_per_token"] == 50'000'000.0);          // 800 MB / 16
  CHECK(f["h2d_gbps"] == 1.0);                              // 1.1 GB in 1.1 s
  CHECK(f["link_percent"] == 25.0);
  CHECK(f["stall_ms_per_token"] == 20.0);                  // 280 / 14
  CHECK(f["transfer_to_compute"] == Approx(200.0 / 720));  // 800 MB at 4 GB/s; 1000 - 280 ms
  CHECK(f["prefill_stall_ms"] == 30.0);
  CHECK(f["hits"] == 3);
  CHECK(f["h2d_bytes"] == 1'100'000'000);
}

TEST_CASE("repeats give medians and their spread") {
  std::vector<RepeatFigures> repeats(3, two_requests());
  repeats[0].prefill_ns = 200'000'000;
  repeats[1].prefill_ns = 110'000'000;
  repeats[2].decode.misses = 4;
  const auto f = make_figures(repeats, 0);
  CHECK(f["prefill_ms"] == 110.0);
  CHECK(f["spread"]["prefill_ms"] == nlohmann::json({100.0, 200.0}));
  CHECK(f["misses"] == 0);
  CHECK(f["spread"]["misses"] == nlohmann::json({0, 4}));
  CHECK_FALSE(f["spread"].contains("hits"));
  CHECK(f["link_percent"].is_null());  // no link is known
  CHECK(f["transfer_to_compute"].is_null());

  std::vector<RepeatFigures> even(2, two_requests());
  even[1].prefill_ns = 300'000'000;
  CHECK(make_figures(even, 0)["prefill_ms"] == 200.0);
}

TEST_CASE("a figure without a meaning is null") {
  RepeatFigures one = two_requests();
  one.tokens = 2;  // one each: nothing was decoded
  one.decode_rows = 0;
  one.sequence_ns = one.decode_ns = 0;
  const auto f = make_figures({&one, 1}, 4.0);
  CHECK(f["decode_tokens_per_second"].is_null());
  CHECK(f["h2d_bytes_per_token"].is_null());
  CHECK(f["stall_ms_per_token"].is_null());
  CHECK(f["prefill_ms"] == 100.0);
}

TEST_CASE("a run that moves less than its slots allow is found out") {
  CHECK(problem_with({true, 1000, 1000}).empty());
  CHECK(problem_with({false, 0, 0}).empty());
  CHECK_THAT(problem_with({true, 0, 0}), Contains("no byte was moved"));
  CHECK_THAT(problem_with({true, 1000, 999}), Contains("no policy can move less"));
}

TEST_CASE("a stop text is never shown, nor a part of one") {
  StopText stops({"###", "END."});
  CHECK(stops.push("one #") == "one ");
  CHECK(stops.push("#x ##") == "##x ");
  CHECK_FALSE(stops.stopped());
  CHECK(stops.push("E") == "##");
  CHECK(stops.push("N") == "");
  CHECK(stops.push("D.more") == "");
  CHECK(stops.stopped());
  CHECK(stops.push("after") == "");

  StopText open({"abc"});
  CHECK(open.push("xab") == "x");
  CHECK(open.finish() == "ab");

  StopText first({"b", "ab"});  // the earliest counts
  CHECK(first.push("xxab") == "xx");

  StopText none({});
  CHECK(none.push("as it is") == "as it is");
}

TEST_CASE("stop texts cut the same whatever the pieces") {
  const std::string text = "aabaabaabcaab";
  for (const std::string stop : {"aabc", "abaa", "b", "zz"}) {
    const std::string expected = text.substr(0, text.find(stop));
    for (std::size_t size = 1; size <= text.size(); ++size) {
      StopText stops({stop});
      std::string shown;
      for (std::size_t i = 0; i < text.size(); i += size) shown += stops.push(text.substr(i, size));
      if (!stops.stopped()) shown += stops.finish();
      CHECK(shown == expected);
    }
  }
}

}  // namespace sluice
