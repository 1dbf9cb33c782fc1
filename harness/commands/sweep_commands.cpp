#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/commands/predict_routing.hpp"
#include "harness/progress.hpp"
#include "harness/record.hpp"
#include "harness/sweep.hpp"
#include "harness/table.hpp"

namespace sluice {
namespace {

enum class Mode { run, sweep, predict, profile };

// Of one experiment, its sweep left aside.
bool is_single(Mode mode) { return mode == Mode::run || mode == Mode::profile; }

struct SweepCommand {
  ExperimentOptions experiment;
  std::string file, out, routing;
  bool json = false, help_keys = false;
  ExitCode* exit_code = nullptr;
};

void print_sample(std::span<const Json> records) {
  for (const Json& record : records) {
    if (record["valid"] != true || !record["sample"].is_object()) continue;
    fmt::print("\nThe first prompt, by {} with budget {}:\n  {}\n  -> {}\n",
               policy_label(record["inputs"]), budget_label(record["inputs"]),
               record["sample"]["prompt"].get<std::string>(),
               record["sample"]["text"].get<std::string>());
    return;
  }
}

Document document_of(const SweepCommand& command, Mode mode) {
  std::vector<Override> overrides = command.experiment.overrides();
  if (mode == Mode::predict)
    overrides.push_back(
        plain_override("device.kind", std::string(name_of(DeviceKind::sim)), "predict"));
  if (mode == Mode::profile) {  // what is recorded is one run
    overrides.push_back(plain_override("measure.warmup", "0", "profile"));
    overrides.push_back(plain_override("measure.repeats", "1", "profile"));
  }
  Document document = read_document(load_yaml(command.file), overrides);
  if (mode == Mode::predict) document.forget("device.link_gbps");  // the machine has its own
  if (is_single(mode)) document.axes.clear();
  return document;
}

Instruments instruments_of(const SweepCommand& command, Mode mode) {
  Instruments instruments = command.experiment.instruments();
  if (mode == Mode::profile) instruments.routing_file = command.routing;
  return instruments;
}

void execute(SweepCommand& command, Mode mode) {
  if (command.help_keys) {
    fmt::print("{}", describe_keys());
    return;
  }
  if (mode == Mode::predict && !command.routing.empty())
    return predict_routing(command.experiment, command.file, command.routing, command.json);
  if (command.file.empty()) throw InputError("EXPERIMENT is missing; a YAML file, see --help-keys");

  // Everything is checked before anything is written or run.
  PluginCache plugins = command.experiment.plugins();
  ModelCache models;
  std::vector<PreparedCell> cells;
  std::set<std::string> ids;
  for (const Settings& settings : expand(document_of(command, mode))) {
    PreparedCell cell = prepare(make_experiment(settings, command.file), models, plugins,
                                instruments_of(command, mode));
    if (!ids.insert(cell.id).second) continue;
    cells.push_back(std::move(cell));
    Instruments& instruments = cells.back().instruments;
    if (!is_single(mode)) instruments = instruments.of_cell(cells.back().id);
  }

  std::string out = command.out;
  if (out.empty() && mode == Mode::sweep) out = "results/" + cells.front().experiment.name;
  std::optional<ResultsFile> results;
  if (!out.empty()) results.emplace(out, !is_single(mode));
  std::vector<Json> records =
      run_sweep(cells, models, results ? &*results : nullptr, {.rethrow = is_single(mode)});

  if (command.json)
    fmt::print("{}\n", to_line(is_single(mode) ? records.front() : Json(records)));
  else
    fmt::print("{}", format_table(records));
  if (!command.json) print_sample(records);
  std::fflush(stdout);
  if (mode == Mode::profile) say(fmt::format("routing is in {}", command.routing));
  if (results) say(fmt::format("results are in {}", results->path().string()));
  const bool any_valid = std::any_of(records.begin(), records.end(),
                                     [](const Json& record) { return record["valid"] == true; });
  if (!any_valid) command.exit_code->value = 1;
}

void add_common(CLI::App& command, ExitCode& exit_code, Mode mode) {
  auto options = std::make_shared<SweepCommand>();
  options->exit_code = &exit_code;
  options->experiment.add_to(command);
  options->experiment.add_instruments(command);
  command.add_option("experiment", options->file, "a YAML file")->type_name("EXPERIMENT");
  command.add_option("--out", options->out, "the directory of results.jsonl")->type_name("DIR");
  command.add_flag("--json", options->json, "records in place of the table");
  command.add_flag("--help-keys", options->help_keys, "every key of an experiment, and exit");
  if (mode == Mode::predict)
    command
        .add_option("--routing", options->routing,
                    "in place of times: what policies and budgets hit of recorded routing, as "
                    "`sluice profile` writes it, beside the best possible; --policy and "
                    "--expert-slots may be lists")
        ->type_name("FILE");
  if (mode == Mode::profile)
    command.add_option("--routing", options->routing, "the file to write")
        ->type_name("FILE")
        ->required();
  command.callback([options, mode] { execute(*options, mode); });
}

}  // namespace

void add_run(CLI::App& app, ExitCode& exit_code) {
  add_common(*app.add_subcommand("run", "runs an experiment once, its sweep left aside"), exit_code,
             Mode::run);
}

void add_sweep(CLI::App& app, ExitCode& exit_code) {
  add_common(*app.add_subcommand("sweep",
                                 "runs every combination of an experiment's sweep; goes on "
                                 "where it was interrupted"),
             exit_code, Mode::sweep);
}

void add_profile(CLI::App& app, ExitCode& exit_code) {
  add_common(
      *app.add_subcommand("profile",
                          "runs an experiment once and writes down which experts its routers "
                          "choose, for `predict --routing` and policies that pin"),
      exit_code, Mode::profile);
}

void add_predict(CLI::App& app, ExitCode& exit_code) {
  add_common(*app.add_subcommand("predict",
                                 "what a sweep would give on the machine named by --machine: in "
                                 "virtual time, nothing is executed"),
             exit_code, Mode::predict);
}

}  // namespace sluice
