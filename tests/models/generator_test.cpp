// Stopping, running ahead, streaming, cancelling, and what is refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "core/device/sim_device.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"

namespace sluice::test {
namespace {

using Catch::Matchers::Contains;

class Bench {
 public:
  explicit Bench(const char* name, std::uint32_t sequences = 4, std::uint32_t context = 512,
                 Ids stop_ids = {})
      : rig(checkpoint(name), DType::f32),
        provider(rig.device(), rig.compute(), rig.weights()),
        decoder(rig.decoder({.context = context, .sequences = sequences})),
        generator(rig.device(), *decoder, provider, std::move(stop_ids)) {}

  ModelRig rig;
  ResidentProvider provider;
  std::unique_ptr<Decoder> decoder;
  Generator generator;
};

Ids until(const Ids& tokens, std::int32_t stop) {
  const auto at = std::find(tokens.begin(), tokens.end(), stop);
  return {tokens.begin(), at == tokens.end() ? at : at + 1};
}

TEST_CASE("a stop ends its sequence and what was chosen after it does not count", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("llama-tiny"));
  const std::int32_t stop = golden[0].greedy_fp32[2];
  const Ids expected = until(golden[0].greedy_fp32, stop);
  REQUIRE(expected.size() == 3);

  Bench bench("llama-tiny", 4, 512, {7, stop});
  std::vector<GenerationRequest> one{greedy(golden[0].prompt, 24)};
  one[0].ignore_eos = false;
  const GenerationResult result = bench.generator.run(one, 1)[0];
  CHECK(result.tokens == expected);
  CHECK(result.finish == Finish::stop);
  // The third token is read when two more passes are on their way.
  CHECK(bench.generator.times().decode_passes == 4);
  CHECK(bench.generator.times().surplus_passes == 2);
  CHECK(bench.generator.times().prompt_tokens == golden[0].prompt.size());

  one[0].ignore_eos = true;
  const GenerationResult on = bench.generator.run(one, 1)[0];
  CHECK(on.tokens == golden[0].greedy_fp32);
  CHECK(on.finish == Finish::length);
  CHECK(bench.generator.times().decode_passes == 23);
  CHECK(bench.generator.times().surplus_passes == 0);
}

TEST_CASE("the rest of a batch goes on as if nobody had left", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("llama-tiny"));
  const std::int32_t stop = golden[0].greedy_fp32[2];
  Bench bench("llama-tiny", 4, 512, {stop});
  for (const std::uint32_t batch : {1u, 2u, 3u, 4u}) {
    std::vector<GenerationRequest> requests;
    for (std::size_t i = 0; i < golden.size(); ++i) {
      requests.push_back(greedy(golden[i].prompt, 24 - static_cast<std::uint32_t>(3 * i)));
      requests.back().ignore_eos = i % 2 == 1;
    }
    const std::vector<GenerationResult> results = bench.generator.run(requests, batch);
    for (std::size_t i = 0; i < golden.size(); ++i) {
      CAPTURE(batch, i);
      Ids expected = golden[i].greedy_fp32;
      expected.resize(requests[i].max_new_tokens);
      if (!requests[i].ignore_eos) expected = until(expected, stop);
      CHECK(results[i].tokens == expected);
      const bool stopped = !requests[i].ignore_eos && expected.back() == stop;
      CHECK(results[i].finish == (stopped ? Finish::stop : Finish::length));
      CHECK(results[i].first_token_ns > 0);
      CHECK(results[i].first_token_ns <= results[i].total_ns);
    }
  }
}

TEST_CASE("a single token is a prefill and nothing more", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("qwen3-tiny"));
  Bench bench("qwen3-tiny");
  const GenerationResult result =
      bench.generator.run(std::vector{greedy(golden[1].prompt, 1)}, 1)[0];
  CHECK(result.tokens == Ids{golden[1].greedy_fp32[0]});
  CHECK(result.first_token_ns == result.total_ns);
  CHECK(bench.generator.times().decode_passes == 0);
  CHECK(bench.generator.times().decode_ns == 0);
}

TEST_CASE("a stop id is not chosen before min_new_tokens", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("llama-tiny"));
  const std::int32_t stop = golden[0].greedy_fp32[2];
  Bench bench("llama-tiny", 1, 512, {stop});
  std::vector<GenerationRequest> one{greedy(golden[0].prompt, 24)};
  one[0].ignore_eos = false;
  one[0].sampling.min_new_tokens = 6;
  const Ids tokens = bench.generator.run(one, 1)[0].tokens;
  REQUIRE(tokens.size() >= 7);
  CHECK(std::find(tokens.begin(), tokens.begin() + 6, stop) == tokens.begin() + 6);
  CHECK(std::equal(tokens.begin(), tokens.begin() + 2, golden[0].greedy_fp32.begin()));
}

TEST_CASE("tokens that are fed stand in for those that were chosen", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("qwen3-tiny"));
  Bench bench("qwen3-tiny", 2, 512, {golden[2].greedy_fp32[1]});
  GenerationRequest forced = greedy(golden[2].prompt, 8);
  forced.ignore_eos = false;
  forced.force_ids = {11, 12, 13, 14};
  Ids longer = golden[2].prompt;
  longer.insert(longer.end(), forced.force_ids.begin(), forced.force_ids.end());
  GenerationRequest after = greedy(longer, 4);
  const auto results = bench.generator.run(std::vector{forced, after}, 2);
  REQUIRE(results[0].tokens.size() == 8);
  CHECK(results[0].tokens[0] == golden[2].greedy_fp32[0]);
  CHECK(Ids(results[0].tokens.begin() + 4, results[0].tokens.end()) == results[1].tokens);
}

TEST_CASE("tokens are streamed in order and a request can be cancelled", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("qwen3-tiny"));
  Bench bench("qwen3-tiny", 3);
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < 5; ++i) requests.push_back(greedy(golden[i].prompt, 24));
  std::vector<Ids> streamed(requests.size());
  const auto results =
      bench.generator.run(requests, 3, [&](std::size_t request, std::int32_t token) {
        streamed[request].push_back(token);
        return !((request == 1 && streamed[1].size() == 3) ||
                 (request == 4 && streamed[4].size() == 1));
      });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    Ids expected = golden[i].greedy_fp32;
    if (i == 1) expected.resize(3);
    if (i == 4) expected.resize(1);
    CHECK(results[i].tokens == expected);
    CHECK(streamed[i] == expected);
    CHECK(results[i].finish == (i == 1 || i == 4 ? Finish::cancelled : Finish::length));
  }
}

TEST_CASE("a callback that throws leaves the generator usable", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("qwen3-tiny"));
  Bench bench("qwen3-tiny", 2);
  const std::vector<GenerationRequest> requests{greedy(golden[0].prompt, 24),
                                                greedy(golden[1].prompt, 24)};
  CHECK_THROWS_AS(bench.generator.run(requests, 2,
                                      [](std::size_t, std::int32_t) -> bool {
                                        throw std::runtime_error("enough");
                                      }),
                  std::runtime_error);
  const auto results = bench.generator.run(requests, 2);
  CHECK(results[0].tokens == golden[0].greedy_fp32);
  CHECK(results[1].tokens == golden[1].greedy_fp32);
}

TEST_CASE("sampling depends on the request's seed and not on its company", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("llama-tiny"));
  Bench bench("llama-tiny", 4);
  std::vector<GenerationRequest> requests;
  for (const std::uint64_t seed : {1u, 2u, 3u, 1u}) {
    requests.push_back(greedy(golden[3].prompt, 16));
    requests.back().sampling = {.temperature = 3.0f, .seed = seed};
  }
  const auto together = bench.generator.run(requests, 4);
  const auto alone = bench.generator.run(requests, 1);
  for (std::size_t i = 0; i < requests.size(); ++i) CHECK(together[i].tokens == alone[i].tokens);
  CHECK(together[0].tokens == together[3].tokens);
  CHECK(std::set<Ids>{together[0].tokens, together[1].tokens, together[2].tokens}.size() == 3);
}

TEST_CASE("prompt and new tokens may fill the context and not pass it", "[generator]") {
  const std::vector<Golden> golden = golden_of(checkpoint("qwen3-tiny"));
  REQUIRE(golden[3].prompt.size() == 17);
  Bench bench("qwen3-tiny", 1, 41);
  CHECK(bench.generator.run(std::vector{greedy(golden[3].prompt, 24)}, 1)[0].tokens ==
        golden[3].greedy_fp32);
  CHECK_THROWS_WITH(
      bench.generator.run(std::vector{greedy(golden[3].prompt, 25)}, 1),
      Contains("17 tokens") && Contains("25 new") && Contains("42 positions") && Contains("41"));
}

TEST_CASE("a request that cannot be is refused before anything runs", "[generator]") {
  Bench bench("qwen3-tiny", 2);
  const GenerationRequest good = greedy({1, 2, 3}, 4);
  bool ran = false;
  const auto refused = [&](auto&& spoil) {
    GenerationRequest bad = good;
    spoil(bad);
    CHECK_THROWS_AS(bench.generator.run(std::vector{good, bad}, 1,
                                        [&](std::size_t, std::int32_t) { return ran = true; }),
                    InputError);
  };
  refused([](auto& r) { r.prompt.clear(); });
  refused([](auto& r) { r.prompt[1] = 320; });
  refused([](auto& r) { r.prompt[1] = -1; });
  refused([](auto& r) { r.max_new_tokens = 0; });
  refused([](auto& r) { r.force_ids = {320}; });
  refused([](auto& r) { r.sampling.temperature = -1; });
  refused([](auto& r) { r.sampling.temperature = std::nanf(""); });
  refused([](auto& r) { r.sampling.top_k = -1; });
  refused([](auto& r) { r.sampling.top_p = 0; });
  refused([](auto& r) { r.sampling.top_p = 1.1f; });
  refused([](auto& r) { r.sampling.min_p = -0.1f; });
  CHECK_FALSE(ran);
  CHECK_THROWS_AS(bench.generator.run(std::vector{good}, 0), InputError);
  CHECK_THROWS_AS(bench.generator.run(std::vector{good}, 3), InputError);
  CHECK_THROWS_AS(Generator(bench.rig.device(), *bench.decoder, bench.provider, {320}), InputError);
  CHECK(bench.generator.run(std::vector{good}, 1)[0].tokens.size() == 4);
}

// Weights that no copy has ever reached.
class NoWeights final : public ILayerProvider {
 public:
  explicit NoWeights(ModelRig& rig) {
    for (const UnitInfo& unit : rig.weights().view().units) {
      slabs_.emplace_back(rig.device(), Buffer::Where::device, unit.size(Encoding::native), "NaNs");
      std::memset(slabs_.back().data(), 0xff, slabs_.back().bytes());
    }
  }
  Lease acquire(const Step& step) override { return {*this, step}; }
  void routed(std::span<const UnitId>) override {}
  std::uint32_t capacity(UnitKind) const override { return 1; }
  const Counters& counters() const override { return counters_; }

 private:
  Weights use(const Step& step, std::size_t i) override {
    const Buffer& slab = slabs_[step.needs[i]];
    return {slab.data(), slab.range(), Encoding::native};
  }
  void close(const Step&) noexcept override {}

  std::vector<Buffer> slabs_;
  Counters counters_;
};

TEST_CASE("logits that are no numbers end the run", "[generator]") {
  for (const char* name : {"qwen3-tiny", "qwen3-tiny-f16", "qwen3-tiny-f32"}) {
    ModelRig rig(checkpoint(name));
    NoWeights provider(rig);
    const auto decoder = rig.decoder({.context = 64, .sequences = 2});
    Generator generator(rig.device(), *decoder, provider, {});
    const std::vector requests{greedy({1, 2, 3}, 9), greedy({4}, 9)};
    CHECK_THROWS_WITH(generator.run(requests, 2), Contains("not finite"));
    CHECK_THROWS_WITH(generator.run(requests, 1), Contains("not finite"));
  }
}

TEST_CASE("on a device that executes nothing a run has its passes and its times", "[generator]") {
  Machine machine;
  machine.name = "round figures";
  machine.device_memory_bytes = machine.host_memory_bytes = 1ull << 32;
  machine.h2d.points = machine.d2h.points = {{1 << 20, 10.0}};
  machine.memory_gbps = 100;
  machine.matrix_tflops = 10;
  machine.host_read_gbps = 50;
  machine.op_ns = 1000;
  ModelRig rig(checkpoint("qwen3-tiny"), {}, make_sim_device(machine));
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = 64, .sequences = 2});
  Generator generator(rig.device(), *decoder, provider, {0});
  GenerationRequest request = greedy({1, 2, 3}, 9);
  request.ignore_eos = false;  // there are no tokens to stop at
  request.want_first_logits = true;
  const auto results = generator.run(std::vector{request, request, request}, 2);
  for (const GenerationResult& result : results) {
    CHECK(result.tokens.size() == 9);
    CHECK(result.first_logits.size() == 320);
    // A pass has 5 layers of more than 8 operations.
    CHECK(result.first_token_ns >= 40000);
    CHECK(result.total_ns >= result.first_token_ns + 8 * 40000);
  }
  CHECK(generator.times().decode_passes == 16);
}

}  // namespace
}  // namespace sluice::test
