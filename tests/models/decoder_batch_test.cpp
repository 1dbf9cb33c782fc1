// A sequence's logits depend on that sequence alone: bit by bit the same in any company, on any pages.
#include <algorithm>

#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"

namespace sluice::test {
namespace {

TEST_CASE("a sequence is the same alone and in a batch of eight", "[decoder]") {
  for (const char* name : {"qwen3-tiny", "llama-mha-biases", "qwen2-f16-yarn", "qwen3-tiny-f32",
                           "qwen3moe-tiny", "qwen3moe-tiny-nonorm"}) {
    ModelRig rig(checkpoint(name));
    std::vector<Ids> prompts;
    for (const std::size_t length : {1, 63, 64, 65, 255, 256, 257, 17})
      prompts.push_back(made_up_prompt(length, 1, rig.config().vocab));
    const std::vector<Trace> together =
        trace_on(rig, prompts, 10, {.context = kTraceContext, .sequences = 8});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      CAPTURE(name, prompts[i].size());
      CHECK(same_bits(together[i], trace_alone(rig, prompts[i], 10)));
    }
  }
}

TEST_CASE("a new sequence on the pages of one that has ended is as if they were new", "[decoder]") {
  ModelRig rig(checkpoint("qwen3-tiny"));
  const Ids old_prompt = made_up_prompt(200, 6, rig.config().vocab);
  const Ids kept_prompt = made_up_prompt(70, 7, rig.config().vocab);
  const Ids new_prompt = made_up_prompt(150, 8, rig.config().vocab);
  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = kTraceContext, .sequences = 2});
  decoder->start(0, {});
  decoder->start(1, {});
  decoder->prefill(provider, std::vector<std::uint32_t>{0, 1},
                   std::vector<std::span<const std::int32_t>>{old_prompt, kept_prompt}, false);
  // Not awaited: the old sequence's last pass may still run when its pages are given away.
  decoder->finish(0);
  decoder->start(0, {});
  decoder->prefill(provider, std::vector<std::uint32_t>{0},
                   std::vector<std::span<const std::int32_t>>{new_prompt}, false);
  const std::int32_t new_first = decoder->chosen(0)[0];
  const std::vector<float> new_logits = decoder->logits(0);
  decoder->decode(provider, std::vector<std::uint32_t>{1, 0}, true);
  const std::int32_t kept_second = decoder->chosen(0)[0];
  const std::vector<float> kept_logits = decoder->logits(1);

  const Trace renewed = trace_alone(rig, new_prompt, 1);
  CHECK(new_first == renewed.tokens[0]);
  CHECK(same_bits(new_logits, renewed.logits[0]));
  const Trace kept = trace_alone(rig, kept_prompt, 2);
  CHECK(kept_second == kept.tokens[1]);
  CHECK(same_bits(kept_logits, kept.logits[1]));
}

}  // namespace
}  // namespace sluice::test
