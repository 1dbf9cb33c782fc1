#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/plugin/plugin_file.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/commands/plugin_check.hpp"
#include "harness/commands/plugin_new.hpp"
#include "harness/commands/plugin_speed.hpp"
#include "harness/printable.hpp"
#include "harness/results_file.hpp"
#include "harness/transfers.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

struct PluginsCommand {
  std::vector<std::string> plugin_dirs, params;
  std::string target;  // a name or a file
  std::string to = ".";
  bool json = false;
  ExitCode* exit_code = nullptr;

  PluginPath path() const { return PluginPath({plugin_dirs.begin(), plugin_dirs.end()}); }
};

Json params_json(std::span<const ParamSpec> specs) {
  Json params = Json::array();
  for (const ParamSpec& spec : specs)
    params.push_back({{"name", spec.name},
                      {"type", name_of(spec.type)},
                      {"default", default_value(spec)},
                      {"allowed", allowed_values(spec)},
                      {"help", spec.help}});
  return params;
}

Json plugin_json(const Plugin& plugin) {
  const PluginDescriptor& descriptor = plugin.descriptor();
  return {{"name", plugin.name()},
          {"version", descriptor.version},
          {"summary", descriptor.summary},
          {"file", plugin.path().string()},
          {"fingerprint", plugin.fingerprint()},
          {"abi", descriptor.identity->abi_version},
          {"compiler", descriptor.identity->signature.data()},
          {"params", params_json(plugin.params())}};
}

void print_params(std::span<const ParamSpec> specs) {
  if (specs.empty()) fmt::print("  no parameters\n");
  for (const ParamSpec& spec : specs)
    fmt::print("  {} = {}: {}; {}\n", spec.name, default_value(spec), allowed_values(spec),
               spec.help);
}

void print_plugin(const Plugin& plugin) {
  fmt::print("{} {}: {}\n", plugin.name(), plugin.descriptor().version,
             plugin.descriptor().summary);
  fmt::print("  file      {}\n  build     {}\n  compiler  {}\n", plugin.path().string(),
             plugin.fingerprint(), plugin.descriptor().identity->signature.data());
  print_params(plugin.params());
}

// Of a policy that is no plugin.
void print_reserved(const PluginsCommand& command) {
  const bool resident = command.target == kResidentPolicy;
  const std::string summary = resident ? "every unit on the device for good, whatever the budget"
                                       : "kernels read the weights where they lie in host memory";
  const std::span<const ParamSpec> params =
      resident ? std::span<const ParamSpec>(kResidentParams) : std::span<const ParamSpec>();
  if (command.json) {
    fmt::print("{}\n", to_line({{"name", command.target},
                                {"version", nullptr},
                                {"summary", summary},
                                {"file", nullptr},
                                {"params", params_json(params)}}));
    return;
  }
  fmt::print("{}: {}\n  a part of Sluice, not a plugin\n", command.target, summary);
  print_params(params);
}

void list(const PluginsCommand& command) {
  const PluginPath path = command.path();
  Json all = Json::array();
  for (const PluginPath::Found& found : path.list()) {
    Json entry = found.plugin ? plugin_json(*found.plugin)
                              : Json{{"name", found.name}, {"file", found.file.string()}};
    entry["refused"] = found.plugin ? Json(nullptr) : Json(found.refused);
    all.push_back(std::move(entry));
  }
  if (command.json) {
    fmt::print("{}\n", to_line(all));
    return;
  }
  for (const Json& entry : all) {
    if (entry["refused"].is_null())
      fmt::print("{:<20} {}\n", entry["name"].get<std::string>(),
                 entry["summary"].get<std::string>());
    else
      fmt::print("{:<20} refused: {}\n", printable(entry["name"].get<std::string>()),
                 printable(entry["refused"].get<std::string>()));
  }
  if (!all.empty()) return;
  fmt::print("no policies in:\n");
  for (const std::filesystem::path& directory : path.directories())
    fmt::print("  {}\n", directory.string());
}

void info(const PluginsCommand& command) {
  if (is_reserved_policy(command.target)) return print_reserved(command);
  const auto plugin = load_plugin(command.path().find(command.target));
  if (command.json)
    fmt::print("{}\n", to_line(plugin_json(*plugin)));
  else
    print_plugin(*plugin);
}

void make_new(const PluginsCommand& command) {
  const std::filesystem::path directory =
      write_new_plugin(command.target, command.to, command.path());
  fmt::print(
      "{0}: a policy to start from, in {1}.cpp. Next:\n  cd {0}\n"
      "  cmake -B build && cmake --build build\n  sluice plugins check build/{1}.so\n",
      directory.string(), command.target);
}

ParamValues params_of(const PluginsCommand& command) {
  ParamValues values;
  for (const std::string& param : command.params) {
    const std::size_t equals = param.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InputError("--param {}: must be KEY=VALUE", param);
    values[param.substr(0, equals)] = param.substr(equals + 1);
  }
  return values;
}

Json trials_json(const std::vector<PluginTrial>& trials) {
  Json rows = Json::array();
  for (const PluginTrial& trial : trials)
    rows.push_back({{"model", trial.model},
                    {"gpu_layer_budget", trial.layers},
                    {"passed", trial.passed},
                    {"weights", trial.weights},
                    {"h2d_bytes", trial.h2d_bytes},
                    {"hits", trial.hits},
                    {"misses", trial.misses},
                    {"wasted", trial.wasted},
                    {"refused", trial.refused},
                    {"problem", trial.passed ? Json(nullptr) : Json(trial.problem)}});
  return rows;
}

Json speeds_json(const std::vector<PredictedSpeed>& speeds) {
  Json rows = Json::array();
  for (const PredictedSpeed& speed : speeds)
    rows.push_back({{"policy", speed.policy},
                    {"machine", speed.machine},
                    {"decode_ms", speed.problem.empty() ? Json(speed.decode_ms) : Json(nullptr)},
                    {"bound", speed.bound},
                    {"problem", speed.problem.empty() ? Json(nullptr) : Json(speed.problem)}});
  return rows;
}

void print_trials(const std::vector<PluginTrial>& trials) {
  fmt::print("OK      loads: ABI, compiler, name and parameters\n");
  for (const PluginTrial& trial : trials) {
    if (trial.passed)
      fmt::print(
          "OK      {}, budget {}: tokens as resident, {} moved, {} hits, {} misses, {} wasted\n",
          trial.model, trial.layers, format_bytes(trial.h2d_bytes), trial.hits, trial.misses,
          trial.wasted);
    else
      fmt::print("FAILED  {}, budget {}: {}\n", trial.model, trial.layers,
                 printable(trial.problem));
  }
}

// A line a policy, a column a machine; `speeds` are by machine, then by policy.
void print_speeds(const std::vector<PredictedSpeed>& speeds) {
  fmt::print("\nPredicted decoding of {} with a gpu_layer_budget of {}, ms per token:\n{:<20}",
             kSpeedModel, kSpeedLayers, "");
  std::vector<std::string> machines;
  for (const PredictedSpeed& speed : speeds)
    if (machines.empty() || machines.back() != speed.machine) machines.push_back(speed.machine);
  for (const std::string& machine : machines) fmt::print(" {:>16}", machine);
  fmt::print("\n");
  const std::size_t policies = speeds.size() / machines.size();
  for (std::size_t i = 0; i < policies; ++i) {
    fmt::print("{:<20}", speeds[i].policy);
    for (std::size_t m = 0; m < machines.size(); ++m) {
      const PredictedSpeed& speed = speeds[m * policies + i];
      if (speed.problem.empty())
        fmt::print(" {:>16}", fmt::format("{:.1f} ({})", speed.decode_ms, speed.bound));
      else
        fmt::print(" {:>16}", "does not run");
    }
    fmt::print("\n");
  }
}

void check(const PluginsCommand& command) {
  const auto plugin = load_plugin(command.target);
  const ParamValues params = params_of(command);
  const std::vector<PluginTrial> trials = try_plugin(plugin, params);
  const bool passed = std::all_of(trials.begin(), trials.end(),
                                  [](const PluginTrial& trial) { return trial.passed; });
  if (!passed) command.exit_code->value = 1;
  const std::vector<PredictedSpeed> speeds =
      passed ? predict_speeds(plugin, params) : std::vector<PredictedSpeed>{};
  if (command.json) {
    Json report = plugin_json(*plugin);
    report["passed"] = passed;
    report["trials"] = trials_json(trials);
    report["predicted"] = speeds_json(speeds);
    fmt::print("{}\n", to_line(report));
    return;
  }
  print_plugin(*plugin);
  print_trials(trials);
  if (!speeds.empty()) print_speeds(speeds);
}

std::shared_ptr<PluginsCommand> add_common(CLI::App& command, ExitCode& exit_code) {
  auto options = std::make_shared<PluginsCommand>();
  options->exit_code = &exit_code;
  command.add_flag("--json", options->json, "JSON in place of text");
  return options;
}

void add_plugin_dir(CLI::App& command, PluginsCommand& options) {
  command
      .add_option("--plugin-dir", options.plugin_dirs, "where else policies are; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
}

}  // namespace

void add_plugins(CLI::App& app, ExitCode& exit_code) {
  CLI::App& group = *app.add_subcommand("plugins", "the policies that can be loaded by name");
  group.require_subcommand(1);

  CLI::App& list_command = *group.add_subcommand("list", "every policy on the search path");
  auto list_options = add_common(list_command, exit_code);
  add_plugin_dir(list_command, *list_options);
  list_command.callback([list_options] { list(*list_options); });

  CLI::App& info_command = *group.add_subcommand("info", "one policy and its parameters");
  auto info_options = add_common(info_command, exit_code);
  add_plugin_dir(info_command, *info_options);
  info_command.add_option("name", info_options->target)->type_name("NAME")->required();
  info_command.callback([info_options] { info(*info_options); });

  CLI::App& new_command =
      *group.add_subcommand("new", "writes a policy to start from, which builds outside the tree");
  auto new_options = std::make_shared<PluginsCommand>();
  add_plugin_dir(new_command, *new_options);
  new_command.add_option("name", new_options->target)->type_name("NAME")->required();
  new_command.add_option("--to", new_options->to, "where its directory is made; by default here")
      ->type_name("DIR");
  new_command.callback([new_options] { make_new(*new_options); });

  CLI::App& check_command = *group.add_subcommand(
      "check",
      "loads a policy, tries it on small models under every budget, and says how fast it would be");
  auto check_options = add_common(check_command, exit_code);
  check_command.add_option("file", check_options->target)->type_name("FILE.so")->required();
  check_command.add_option("--param", check_options->params, "a parameter; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  check_command.callback([check_options] { check(*check_options); });
}

}  // namespace sluice
