// From a cell's experiment to all that running it takes: every check that needs no weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/engine/playback_policy.hpp"
#include "core/plugin/loader.hpp"
#include "core/plugin/search_path.hpp"
#include "harness/experiment.hpp"
#include "harness/instruments.hpp"
#include "harness/model_cache.hpp"

namespace sluice {

// Libraries loaded so far, by name.
class PluginCache {
 public:
  explicit PluginCache(PluginPath path) : path_(std::move(path)) {}
  const PluginPath& path() const { return path_; }
  std::shared_ptr<const Plugin> load(const std::string& name);

 private:
  PluginPath path_;
  std::map<std::string, std::shared_ptr<const Plugin>> plugins_;
};

struct PreparedCell {
  std::string id;  // a hash of all that decides the result: inputs, model's and plugin's content
  Experiment experiment;
  const Model* model = nullptr;
  DType dtype = DType::bf16;
  std::shared_ptr<const Plugin> plugin;      // null: resident or mapped, or
  std::shared_ptr<PlaybackPolicy> playback;  // in place of a plug-in
  std::vector<Transfer> transfers;  // by unit, in place of what the policy says; empty: as it says
  Instruments instruments;
  std::vector<std::vector<std::int32_t>> prompts;
  std::uint32_t context = 0;     // positions per sequence
  std::uint32_t batch = 1;       // sequences at once; never more than prompts
  std::uint32_t logit_rows = 1;  // DecoderLimits::logit_rows

  bool is_resident() const { return experiment.policy.name == kResidentPolicy; }
  bool is_mapped() const { return experiment.policy.name == kMappedPolicy; }
};

// Throws InputError for what is missing or broken, a parameter out of range or a prompt that cannot be.
PreparedCell prepare(Experiment experiment, ModelCache& models, PluginCache& plugins,
                     Instruments instruments = {});

// One prompt of check_prompts() as ids. `index` tells random prompts apart.
std::vector<std::int32_t> prompt_ids(const Json& prompt, std::size_t index, const Model& model,
                                     const GenerationChoice& generation);

}  // namespace sluice
