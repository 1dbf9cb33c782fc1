// SmolLM2-135M-Instruct against the reference, where $SLUICE_REAL_MODEL says where it is.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/engine/engine.hpp"
#include "core/engine/resident_provider.hpp"
#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"
#include "tests/places.hpp"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

struct RealCase {
  Ids prompt, greedy_fp32, greedy_native;
  std::vector<float> margin_fp32, margin_native, first_logits;  // of the first few ids
  float largest_fp32 = 0, largest_native = 0;
};

// Nothing, and a line that says so, without the model.
fs::path real_model() {
  const char* path = std::getenv("SLUICE_REAL_MODEL");
  if (path && *path) return path;
  std::printf(
      "SKIPPED: SLUICE_REAL_MODEL does not name a model; scripts/get_model.py fetches it\n");
  return {};
}

std::vector<RealCase> real_cases() {
  std::ifstream file(data_directory() / "real_model_golden.json");
  REQUIRE(file);
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::vector<RealCase> out;
  for (const auto& one : golden.at("cases")) {
    out.push_back(
        {one.at("prompt").get<Ids>(), one.at("greedy_fp32").get<Ids>(),
         one.at("greedy_native").get<Ids>(), one.at("margin_fp32").get<std::vector<float>>(),
         one.at("margin_native").get<std::vector<float>>(),
         one.at("first_logits_fp32_head").get<std::vector<float>>(),
         one.at("largest_logit_fp32").get<float>(), one.at("largest_logit_native").get<float>()});
  }
  return out;
}

TEST_CASE("the real model in f32 chooses the reference's tokens", "[real]") {
  const fs::path path = real_model();
  if (path.empty()) return;
  const std::vector<RealCase> cases = real_cases();
  std::vector<GenerationRequest> requests;
  for (const RealCase& one : cases) {
    requests.push_back(greedy(one.prompt, 24));
    requests.back().want_first_logits = true;
  }
  ModelRig rig(path, DType::f32);
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = 128, .sequences = 3});
  const auto results = Generator(rig.device(), *decoder, provider, {}).run(requests, 3);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    CHECK(results[i].tokens == cases[i].greedy_fp32);
    for (std::size_t id = 0; id < cases[i].first_logits.size(); ++id)
      CHECK(std::abs(results[i].first_logits[id] - cases[i].first_logits[id]) <
            1e-4f * cases[i].largest_fp32);
  }
}

TEST_CASE("the real model in bf16 chooses the reference's tokens where they are clear", "[real]") {
  const fs::path path = real_model();
  if (path.empty()) return;
  const std::vector<RealCase> cases = real_cases();
  std::vector<GenerationRequest> requests;
  for (const RealCase& one : cases) {
    requests.push_back(greedy(one.prompt, 24));
    requests.back().force_ids = one.greedy_native;
    requests.back().want_first_logits = true;
  }
  ModelRig rig(path);
  REQUIRE(rig.dtype() == DType::bf16);
  std::vector<GenerationResult> resident;
  {
    ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
    const auto decoder = rig.decoder({.context = 128, .sequences = 3});
    resident = Generator(rig.device(), *decoder, provider, {}).run(requests, 3);
  }
  std::size_t compared = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::size_t at = 0; at < 24; ++at) {
      if (cases[i].margin_native[at] < 0.02f * cases[i].largest_native) continue;
      ++compared;
      CAPTURE(i, at);
      CHECK(resident[i].tokens[at] == cases[i].greedy_native[at]);
    }
  }
  std::printf("compared %zu of %zu positions\n", compared, 24 * cases.size());
  CHECK(compared > 24);

  const PolicyPtr policy = make_policy(load_plugin(policy_directory() / "ring_prefetch.so"), {});
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, "ring_prefetch",
                LayerBudget{7});
  const auto decoder = rig.decoder({.context = 128, .sequences = 3});
  const auto streamed = Generator(rig.device(), *decoder, engine, {}).run(requests, 3);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CHECK(streamed[i].tokens == resident[i].tokens);
    CHECK(same_bits(streamed[i].first_logits, resident[i].first_logits));
  }
  CHECK(engine.counters().h2d_bytes > 0);
}

}  // namespace
}  // namespace sluice::test
