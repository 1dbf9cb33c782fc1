#include <fmt/core.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/json_node.hpp"
#include "harness/cell.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/decision_file.hpp"
#include "harness/printable.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

struct ReplayCommand {
  ExperimentOptions experiment;
  std::string file;
  ExitCode* exit_code = nullptr;
};

// The recorded experiment, on the device of the command line where that names one.
Experiment experiment_of(const RecordedRun& recorded, const ReplayCommand& command) {
  const std::vector<Override> overrides = command.experiment.overrides();
  Json given = recorded.experiment;
  if (std::any_of(overrides.begin(), overrides.end(),
                  [](const Override& one) { return one.path == "device.kind"; }))
    given.erase("device");
  const YamlNode root = parse_yaml(given.dump(), command.file);
  Experiment experiment = make_experiment(read_document(root, overrides).base, command.file);
  // As often as the recorded run, whatever the device would do by itself: steps are counted on.
  const JsonNode measure = JsonNode(recorded.experiment, command.file, "experiment").at("measure");
  experiment.warmup = static_cast<std::uint32_t>(measure.at("warmup").integer(0, 1 << 30));
  experiment.repeats = static_cast<std::uint32_t>(measure.at("repeats").integer(1, 1 << 30));
  experiment.policy = {std::string(kResidentPolicy), {}, {}};  // no plug-in is needed
  return experiment;
}

// Which experts a step needs is what the router makes of hidden states. A simulated device has none
// and draws them, so neither kind's steps are the other's.
void check_routing(const RecordedRun& recorded, const PreparedCell& cell,
                   const ReplayCommand& command) {
  if (cell.model->source.config.experts.count == 0) return;
  const JsonNode device = JsonNode(recorded.experiment, command.file, "experiment").at("device");
  const std::string before = device.at("kind").string();
  const DeviceKind now = cell.experiment.device.kind;
  if ((before == name_of(DeviceKind::sim)) == (now == DeviceKind::sim)) return;
  throw InputError(
      "{}: was recorded on {} and is to be played back on {}; the model has experts, and a "
      "simulated device draws them instead of computing which are needed, so the steps are others",
      command.file, before, name_of(now));
}

void execute(const ReplayCommand& command) {
  RecordedRun recorded = read_decision_file(command.file);
  if (recorded.counters.is_null())
    throw InputError("{}: the recorded run did not come to its end", command.file);
  ModelCache models;
  PluginCache none{PluginPath{}};
  PreparedCell cell =
      prepare(experiment_of(recorded, command), models, none, command.experiment.instruments());
  check_routing(recorded, cell, command);
  const std::string policy = recorded.policy.at("name").get<std::string>();
  cell.experiment.policy.name = policy;
  cell.playback = std::make_shared<PlaybackPolicy>(std::move(recorded.decisions));
  LinkRates links;
  const CellResult result = run_cell(cell, models, links, true);

  bool agrees = true;
  const auto compare = [&](const char* what, const Json& before, const Json& now) {
    agrees = agrees && before == now;
    fmt::print(
        "{:<10} {}\n", what,
        before == now ? "as recorded" : fmt::format("{}; recorded: {}", now.dump(), before.dump()));
  };
  fmt::print("{} of {}, played back on {} ({})\n", policy, command.file,
             name_of(cell.experiment.device.kind), result.device);
  compare("decisions", "", result.difference);
  compare("counters", recorded.counters, to_json(result.counters));
  if (recorded.tokens_hash.is_string() && !result.tokens.empty())
    compare("tokens", recorded.tokens_hash, result.figures["tokens_hash"]);
  const Json& rate = result.figures["decode_tokens_per_second"];
  if (rate.is_number()) fmt::print("{:<10} {:.2f} tokens/s\n", "decode", rate.get<double>());
  for (const std::string& reason : result.reasons) fmt::print("not valid  {}\n", printable(reason));
  if (!agrees || !result.reasons.empty()) command.exit_code->value = 1;
}

}  // namespace

void add_replay(CLI::App& app, ExitCode& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "replay", "runs recorded decisions again, and says whether the same comes of them");
  auto options = std::make_shared<ReplayCommand>();
  options->exit_code = &exit_code;
  command.add_option("file", options->file, "written with --decisions")
      ->type_name("FILE.jsonl")
      ->required();
  options->experiment.add_device(command);
  options->experiment.add_instruments(command);
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
