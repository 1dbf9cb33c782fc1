#include "harness/commands/plugin_check.hpp"

#include "core/error.hpp"
#include "harness/session.hpp"
#include "harness/verdict.hpp"

namespace sluice {
namespace {

constexpr const char* kModel = "tiny-dense";
constexpr std::uint32_t kNewTokens = 12;

Settings trial_settings() {
  Settings settings;
  const auto set = [&](const char* key, Json value) {
    settings.set(*find_key(key), {std::move(value), {}});
  };
  set("name", "check");
  set("model.synthetic", kModel);
  set("policy", {{"plugin", kResidentPolicy}, {"params", Json::object()}});
  // Of different lengths, in two batches, so that steps differ in their tokens.
  set("generation.prompts", Json::array({{{"random", 5}}, {{"random", 17}}, {{"random", 1}}}));
  set("generation.batch", 2);
  set("generation.max_new_tokens", kNewTokens);
  return settings;
}

struct TrialRun {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<float>> first_logits;  // random weights repeat tokens; these differ
  Counters counters;
  Moves moves;
  bool lossless = false;
};

TrialRun run(const PreparedCell& cell, const WeightStore& packed) {
  Session session(cell, packed, /*poison=*/true);
  std::vector<GenerationRequest> requests(cell.prompts.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = cell.prompts[i];
    requests[i].max_new_tokens = kNewTokens;
    requests[i].ignore_eos = true;
    requests[i].want_first_logits = true;
  }
  TrialRun out;
  const PhaseBook before = session.phases();
  for (const GenerationResult& result : session.generator().run(requests, cell.batch)) {
    out.tokens.push_back(result.tokens);
    out.first_logits.push_back(result.first_logits);
  }
  out.counters = session.counters();
  const std::uint64_t batches = (requests.size() + cell.batch - 1) / cell.batch;
  out.moves = {
      session.must_move(),
      session.least_bytes_per_pass() * ((session.phases() - before).decode_passes + batches),
      out.counters.h2d_bytes};
  out.lossless = session.is_lossless();
  return out;
}

std::string problem_of(const TrialRun& trial, const TrialRun& resident) {
  if (trial.lossless && trial.tokens != resident.tokens)
    return "tokens differ from the resident run's";
  if (trial.lossless && trial.first_logits != resident.first_logits)
    return "logits differ from the resident run's";
  if (trial.counters.refused > 0)
    return fmt::format("{} wishes were refused", trial.counters.refused);
  return problem_with(trial.moves);
}

}  // namespace

std::vector<PluginTrial> try_plugin(const std::shared_ptr<const Plugin>& plugin,
                                    const ParamValues& params) {
  const CheckedParams checked(plugin->name(), plugin->params(), params);
  ModelCache models;
  PluginCache none{PluginPath{}};
  PreparedCell cell = prepare(make_experiment(trial_settings(), ""), models, none);
  const WeightStore& packed = models.pack(cell.experiment, cell.dtype);
  const TrialRun resident = run(cell, packed);

  cell.plugin = plugin;
  cell.experiment.policy = {plugin->name(), params, {}};
  std::vector<PluginTrial> trials;
  const auto layers = static_cast<std::uint32_t>(cell.model->source.config.layers);
  for (std::uint32_t budget = 1; budget <= layers + 1; ++budget) {
    PluginTrial trial;
    trial.layers = budget;
    cell.experiment.budget = LayerBudget{budget};
    try {
      const TrialRun tried = run(cell, packed);
      trial.lossless = tried.lossless;
      trial.h2d_bytes = tried.counters.h2d_bytes;
      trial.hits = tried.counters.hits;
      trial.misses = tried.counters.misses;
      trial.wasted = tried.counters.wasted;
      trial.refused = tried.counters.refused;
      trial.problem = problem_of(tried, resident);
    } catch (const Error& error) {
      trial.problem = error.what();
    }
    trial.passed = trial.problem.empty();
    trials.push_back(std::move(trial));
  }
  return trials;
}

}  // namespace sluice
