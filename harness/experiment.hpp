// One cell of an experiment: every value typed, every path found, every prompt read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device/make_device.hpp"
#include "core/dtype.hpp"
#include "core/engine/budget.hpp"
#include "core/plugin/params.hpp"
#include "harness/settings.hpp"
#include "models/model_source.hpp"
#include "models/ops/kernels.hpp"
#include "models/synthetic_routing.hpp"

namespace sluice {

// Names that stand for providers of the engine's own, not for plugins.
inline constexpr std::string_view kResidentPolicy = "resident";
inline constexpr std::string_view kMappedPolicy = "mapped";

struct PolicyChoice {
  std::string name;
  ParamValues params;
  Origin place;  // for errors about the name or the parameters
};

struct GenerationChoice {
  Json prompts;  // as check_prompts gives them; null: none
  std::uint32_t max_new_tokens = 0;
  SamplingParams sampling;
  bool ignore_eos = false;
  bool chat = false;
  std::vector<std::string> stop_texts;
  std::vector<std::int32_t> stop_ids;
  std::uint32_t batch = 1;
  std::optional<std::uint32_t> context;  // none: what the prompts need
};

struct Experiment {
  std::string name;
  ModelLocation model;
  std::optional<SyntheticRoutingParams> routing;  // in place of the routers' choice
  DeviceSpec device;
  std::optional<std::uint64_t> pinned_limit;  // bytes of weights that may be pinned
  PolicyChoice policy;
  BudgetSpec budget;           // of an AutoBudget the bytes are not known yet
  std::optional<DType> dtype;  // none: the model's own
  GenerationChoice generation;
  std::uint32_t warmup = 0, repeats = 1;
  Json inputs;  // every key with its value, for the record; prompts by file and hash
};

// Throws InputError for what one key alone cannot show: no model, a file that is not there, values
// that contradict each other. `file` is the experiment's, or empty.
Experiment make_experiment(const Settings& settings, const std::string& file);

// Parts of it, for what needs no more of the settings.
ModelLocation model_location(const Settings& settings, const std::string& file);
PolicyChoice policy_choice(const Settings& settings);
BudgetSpec budget_spec(const Settings& settings);

// What a cell is called in tables and messages: "ring_prefetch depth=2".
std::string policy_label(const Json& inputs);
// "8 layers", "6.00 GiB", "960 experts", "auto".
std::string budget_label(const Json& inputs);

}  // namespace sluice
