// Any text as a config.json and a generation_config.json: refused, or a model that holds together.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "models/config.hpp"
#include "models/generation_config.hpp"
#include "models/model_plan.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const sluice::ModelConfig& config) {
  require(config.layers > 0 && config.hidden > 0 && config.intermediate > 0 && config.vocab > 0);
  require(config.head_dim > 0 && config.head_dim % 2 == 0);
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0);
  require(config.rope.theta > 1 && config.rope.factor >= 1 && config.rope.attention_factor >= 0);
  // A plan takes time and memory with the number of units.
  if (config.layers * (config.experts.count + 2) > 512) return;
  const sluice::ModelPlan plan = plan_model(config);
  for (const sluice::UnitSpec& unit : plan.units) {
    require(!unit.tensors.empty());
    for (const sluice::TensorSpec& tensor : unit.tensors) require(tensor.elements() > 0);
    if (unit.kind != sluice::UnitKind::attention) continue;
    const sluice::AttentionTensors t = attention_tensors(config, unit.layer);
    require(t.o < unit.tensors.size() && t.input_norm < unit.tensors.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(sluice::parse_model_config(text, "config.json"));
  } catch (const sluice::InputError&) {
  }
  try {
    for (const std::int32_t id :
         sluice::parse_generation_config(text, "generation_config.json", 320).stop_ids) {
      require(id >= 0 && id < 320);
    }
  } catch (const sluice::InputError&) {
  }
  return 0;
}
