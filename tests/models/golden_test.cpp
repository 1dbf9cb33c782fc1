// Against the Hugging Face reference: tokens and logits of small random models of every family.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kNewTokens = 24;

std::vector<GenerationResult> run_all(ModelRig& rig, const std::vector<GenerationRequest>& requests,
                                      std::uint32_t batch) {
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = 512, .sequences = batch});
  return Generator(rig.device(), *decoder, provider, {}).run(requests, batch);
}

TEST_CASE("in f32 every token is the reference's and the first logits are close", "[golden]") {
  for (const auto& path : all_checkpoints()) {
    const std::vector<Golden> cases = golden_of(path);
    std::vector<GenerationRequest> requests;
    for (const Golden& one : cases) {
      requests.push_back(greedy(one.prompt, kNewTokens));
      requests.back().want_first_logits = true;
    }
    ModelRig rig(path, DType::f32);
    for (const std::uint32_t batch : {1u, 4u}) {
      const std::vector<GenerationResult> results = run_all(rig, requests, batch);
      float worst = 0;
      for (std::size_t i = 0; i < cases.size(); ++i) {
        CAPTURE(path.filename(), i, batch);
        CHECK(results[i].tokens == cases[i].greedy_fp32);
        const auto& logits = results[i].first_logits;
        REQUIRE(logits.size() == cases[i].first_logits_fp32.size());
        for (std::size_t id = 0; id < logits.size(); ++id)
          worst = std::max(worst, std::abs(logits[id] - cases[i].first_logits_fp32[id]) /
                                      cases[i].largest_logit());
      }
      CAPTURE(path.filename(), batch);
      CHECK(worst < 1e-4f);
      std::printf("%s, batch %u: first logits within %.1e of the largest\n",
                  path.filename().c_str(), batch, static_cast<double>(worst));
    }
  }
}

// Sums in another order may flip a rounding, so positions count where the two best logits are
// clearly apart. The reference's tokens are fed, so that one flip does not hide the rest. With experts
// a flip at a near tie of a router is a jump: the reference's own two ways of attention disagree at 5
// of the 126 clear positions of qwen3moe-tiny.
TEST_CASE("in the checkpoint's type the choices are the reference's where they are clear",
          "[golden]") {
  std::size_t compared = 0, positions = 0, equal_unclear = 0, routed = 0, routed_apart = 0;
  for (const auto& path : all_checkpoints()) {
    const std::vector<Golden> cases = golden_of(path);
    std::vector<GenerationRequest> requests;
    for (const Golden& one : cases) {
      requests.push_back(greedy(one.prompt, kNewTokens));
      requests.back().force_ids = one.greedy_native;
    }
    ModelRig rig(path);
    const std::vector<GenerationResult> results = run_all(rig, requests, 4);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Golden& golden = cases[i];
      REQUIRE(results[i].tokens.size() == golden.greedy_native.size());
      for (std::size_t at = 0; at < golden.greedy_native.size(); ++at) {
        ++positions;
        const bool equal = results[i].tokens[at] == golden.greedy_native[at];
        if (golden.margin_native[at] < 0.02f * golden.largest_logit()) {
          equal_unclear += equal;
          continue;
        }
        if (rig.config().experts.count > 0) {
          ++routed;
          routed_apart += !equal;
          continue;
        }
        ++compared;
        CAPTURE(path.filename(), i, at, results[i].tokens[at], golden.greedy_native[at]);
        CHECK(equal);
      }
    }
  }
  std::printf("compared %zu of %zu positions; of the %zu unclear ones %zu are equal as well\n",
              compared + routed, positions, positions - compared - routed, equal_unclear);
  CHECK(compared > 1000);
  std::printf("with experts: %zu of %zu are not\n", routed_apart, routed);
  CHECK(routed > 200);
  CHECK(routed_apart * 25 <= routed);  // 4 %
}

// What the reference's routers chose for one sequence.
class ReferenceRouting final : public IRouting {
 public:
  ReferenceRouting(const Golden& golden, const ModelConfig& config) : golden_(golden) {
    for (std::int32_t layer = 0; layer < config.layers; ++layer)
      if (config.has_experts(layer)) layers_.push_back(layer);
    REQUIRE(layers_.size() == golden.routing_native.size());
  }
  void choose(std::uint32_t, std::uint32_t position, std::int32_t layer,
              std::span<std::int32_t> ids) override {
    const auto at = std::ranges::find(layers_, layer) - layers_.begin();
    const Ids& all = golden_.routing_native[static_cast<std::size_t>(at)];
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(position * ids.size()), ids.size(),
                ids.begin());
  }

 private:
  const Golden& golden_;
  std::vector<std::int32_t> layers_;
};

TEST_CASE("with the reference's experts all clear choices are the reference's", "[golden]") {
  std::size_t compared = 0;
  for (const auto& path : expert_checkpoints()) {
    for (const Golden& golden : golden_of(path)) {
      if (golden.routing_native.empty()) continue;
      ModelRig rig(path);
      ReferenceRouting routing(golden, rig.config());
      ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
      const auto decoder = rig.decoder({.context = 512}, {.given = &routing});
      GenerationRequest request = greedy(golden.prompt, kNewTokens);
      request.force_ids = golden.greedy_native;
      const GenerationResult result =
          Generator(rig.device(), *decoder, provider, {}).run({&request, 1}, 1)[0];
      for (std::size_t at = 0; at < golden.greedy_native.size(); ++at) {
        if (golden.margin_native[at] < 0.02f * golden.largest_logit()) continue;
        ++compared;
        CAPTURE(path.filename(), golden.prompt.size(), at);
        CHECK(result.tokens[at] == golden.greedy_native[at]);
      }
    }
  }
  CHECK(compared > 200);
}

}  // namespace
}  // namespace sluice::test
