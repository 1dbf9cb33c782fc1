#include "harness/commands/plugin_check.hpp"

#include <array>
#include <sstream>

#include "core/engine/decision_log.hpp"
#include "core/error.hpp"
#include "harness/machine_file.hpp"
#include "harness/session.hpp"
#include "harness/verdict.hpp"

namespace sluice {
namespace {

constexpr std::array kShapes{"tiny-dense", "tiny-one-layer", "tiny-deep", "tiny-moe"};
constexpr const char* kMachine = "rtx3070";  // any will do: no decision depends on it
constexpr std::uint32_t kCheckedTokens = 12;

Settings trial_settings(const char* shape) {
  Settings settings;
  const auto set = [&](const char* key, Json value) {
    settings.set(*find_key(key), {std::move(value), {}});
  };
  set("name", "check");
  set("model.synthetic", shape);
  set("policy", {{"plugin", kResidentPolicy}, {"params", Json::object()}});
  // Of different lengths, in two batches, so that steps differ in their tokens.
  set("generation.prompts", Json::array({{{"random", 5}}, {{"random", 17}}, {{"random", 1}}}));
  set("generation.batch", 2);
  set("generation.max_new_tokens", kCheckedTokens);
  return settings;
}

struct TrialRun {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<float>> first_logits;  // random weights repeat tokens; these differ
  Counters counters;
  Moves moves;
  std::string weights;
  std::vector<Transfer> transfers;
  std::string decisions;  // as lines
  std::vector<Race> races;
};

TrialRun run(PreparedCell cell, ModelCache& models) {
  std::ostringstream lines;
  DecisionLog log(lines);
  // The same on every device: one that computes nothing routes nothing.
  const ExpertConfig& experts = cell.model->source.config.experts;
  const auto routing = make_uniform_routing(static_cast<std::uint32_t>(experts.count), 1);
  cell.instruments = {.audit = true, .listener = &log, .routing = {.given = routing.get()}};
  const bool executes = cell.experiment.device.kind != DeviceKind::sim;
  Session session(cell, models, /*poison=*/true);
  std::vector<GenerationRequest> requests(cell.prompts.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = cell.prompts[i];
    requests[i].max_new_tokens = kCheckedTokens;
    requests[i].ignore_eos = true;
    requests[i].want_first_logits = executes;
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
  out.weights = session.weights();
  out.transfers = session.transfers();
  out.races = session.finish();
  out.decisions = lines.str();
  return out;
}

// The first line in which they differ, of both; empty: none.
std::string difference(const std::string& cpu, const std::string& sim) {
  std::istringstream a(cpu), b(sim);
  for (std::string x, y;;) {
    const bool more_a = static_cast<bool>(std::getline(a, x));
    const bool more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a && !more_b) return "";
    if (more_a != more_b || x != y)
      return fmt::format("cpu {}, sim {}", more_a ? x : "nothing", more_b ? y : "nothing");
  }
}

std::string problem_of(const TrialRun& trial, const TrialRun& resident) {
  if (trial.tokens != resident.tokens) return "tokens differ from the resident run's";
  if (trial.first_logits != resident.first_logits) return "logits differ from the resident run's";
  if (trial.counters.refused > 0)
    return fmt::format("{} wishes were refused", trial.counters.refused);
  if (!trial.races.empty()) return "a race: " + trial.races.front().describe();
  return problem_with(trial.moves);
}

std::string problem_of(const TrialRun& cpu, const TrialRun& sim, const TrialRun& resident) {
  if (std::string problem = problem_of(cpu, resident); !problem.empty()) return problem;
  if (const std::string lines = difference(cpu.decisions, sim.decisions); !lines.empty())
    return "decisions differ between two devices: " + lines;
  if (to_json(cpu.counters) != to_json(sim.counters))
    return fmt::format("counters differ between two devices: cpu {}, sim {}",
                       to_json(cpu.counters).dump(), to_json(sim.counters).dump());
  return sim.races.empty() ? "" : "a race on sim: " + sim.races.front().describe();
}

// What a run came to, or why it ended.
struct Outcome {
  TrialRun run;
  std::string failure;
};

Outcome outcome_of(const PreparedCell& cell, ModelCache& models) {
  try {
    return {run(cell, models), ""};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

void try_shape(const char* shape, const std::shared_ptr<const Plugin>& plugin,
               const ParamValues& params, ModelCache& models, std::vector<PluginTrial>& trials) {
  PluginCache none{PluginPath{}};
  PreparedCell cell = prepare(make_experiment(trial_settings(shape), ""), models, none);
  const auto with_plugin = [&](std::uint32_t layers) {
    PreparedCell out = cell;
    out.plugin = plugin;
    out.experiment.policy = {plugin->name(), params, {}};
    out.experiment.budget = LayerBudget{layers};
    return out;
  };
  const auto most = static_cast<std::uint32_t>(cell.model->source.config.layers) + 1;
  std::vector<Outcome> on_cpu;
  for (std::uint32_t layers = 1; layers <= most; ++layers)
    on_cpu.push_back(outcome_of(with_plugin(layers), models));
  // Over the same encodings, which no budget changes.
  for (const Outcome& outcome : on_cpu)
    if (outcome.failure.empty()) cell.transfers = outcome.run.transfers;
  const TrialRun resident = run(cell, models);

  cell.experiment.device = {.kind = DeviceKind::sim, .machine = load_machine(kMachine, {})};
  for (std::uint32_t layers = 1; layers <= most; ++layers) {
    const Outcome& cpu = on_cpu[layers - 1];
    const Outcome sim = outcome_of(with_plugin(layers), models);
    const Counters& counters = cpu.run.counters;
    PluginTrial trial{.model = shape,
                      .layers = layers,
                      .weights = cpu.run.weights,
                      .h2d_bytes = counters.h2d_bytes,
                      .hits = counters.hits,
                      .misses = counters.misses,
                      .wasted = counters.wasted,
                      .refused = counters.refused};
    trial.problem = cpu.failure.empty() ? sim.failure : cpu.failure;
    if (trial.problem.empty()) trial.problem = problem_of(cpu.run, sim.run, resident);
    trial.passed = trial.problem.empty();
    trials.push_back(std::move(trial));
  }
}

}  // namespace

std::vector<PluginTrial> try_plugin(const std::shared_ptr<const Plugin>& plugin,
                                    const ParamValues& params) {
  const CheckedParams checked(plugin->name(), plugin->params(), params);
  ModelCache models;
  std::vector<PluginTrial> trials;
  for (const char* shape : kShapes) try_shape(shape, plugin, params, models, trials);
  return trials;
}

}  // namespace sluice
