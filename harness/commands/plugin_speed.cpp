#include "harness/commands/plugin_speed.hpp"

#include <array>

#include "core/error.hpp"
#include "harness/cell.hpp"
#include "harness/machine_file.hpp"

namespace sluice {
namespace {

constexpr std::array kMachines{"rtx3070", "rtx4090", "h200"};
constexpr std::array kPolicies{"naive_sync", "prefetch", "ring_prefetch"};

Settings speed_settings() {
  Settings settings;
  const auto set = [&](const char* key, Json value) {
    settings.set(*find_key(key), {std::move(value), {}});
  };
  set("name", "speed");
  set("model.synthetic", kSpeedModel);
  set("policy", {{"plugin", kResidentPolicy}, {"params", Json::object()}});
  set("budget.gpu_layer_budget", kSpeedLayers);
  set("generation.prompts", Json::array({{{"random", 128}}}));
  set("generation.max_new_tokens", 16);
  set("generation.ignore_eos", true);
  set("measure.warmup", 0);
  set("measure.repeats", 1);
  return settings;
}

struct Contender {
  std::shared_ptr<const Plugin> plugin;
  ParamValues params;
};

std::vector<Contender> contenders(const std::shared_ptr<const Plugin>& plugin,
                                  const ParamValues& params, PluginCache& known) {
  std::vector<Contender> out;
  for (const char* name : kPolicies) {
    if (plugin->name() == name) continue;
    try {
      out.push_back({known.load(name), {}});
    } catch (const InputError&) {
      // A build may be without it.
    }
  }
  out.push_back({plugin, params});
  return out;
}

}  // namespace

std::vector<PredictedSpeed> predict_speeds(const std::shared_ptr<const Plugin>& plugin,
                                           const ParamValues& params) {
  ModelCache models;
  PluginCache known{PluginPath{}};
  LinkRates links;
  const std::vector<Contender> all = contenders(plugin, params, known);
  std::vector<PredictedSpeed> speeds;
  for (const char* machine : kMachines) {
    Experiment experiment = make_experiment(speed_settings(), "");
    experiment.device = {.kind = DeviceKind::sim, .machine = load_machine(machine, {})};
    PreparedCell cell = prepare(std::move(experiment), models, known);
    for (const Contender& contender : all) {
      cell.plugin = contender.plugin;
      cell.experiment.policy = {contender.plugin->name(), contender.params, {}};
      const CellResult result = run_cell(cell, models, links, false);
      PredictedSpeed speed{.policy = contender.plugin->name(), .machine = machine};
      const Json rate = result.figures.value("decode_tokens_per_second", Json());
      if (rate.is_number()) speed.decode_ms = 1e3 / rate.get<double>();
      speed.bound = result.figures.value("decode_bound", "");
      if (!result.reasons.empty()) speed.problem = result.reasons.front();
      speeds.push_back(std::move(speed));
    }
  }
  return speeds;
}

}  // namespace sluice
