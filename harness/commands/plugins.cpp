#include <fmt/core.h>

#include <filesystem>

#include "core/error.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/commands/plugin_check.hpp"
#include "harness/commands/plugin_new.hpp"
#include "harness/results_file.hpp"
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

Json params_json(const Plugin& plugin) {
  Json params = Json::array();
  for (const ParamSpec& spec : plugin.params())
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
          {"params", params_json(plugin)}};
}

void print_plugin(const Plugin& plugin) {
  fmt::print("{} {}: {}\n", plugin.name(), plugin.descriptor().version,
             plugin.descriptor().summary);
  fmt::print("  file      {}\n  build     {}\n  compiler  {}\n", plugin.path().string(),
             plugin.fingerprint(), plugin.descriptor().identity->signature.data());
  if (plugin.params().empty()) fmt::print("  no parameters\n");
  for (const ParamSpec& spec : plugin.params())
    fmt::print("  {} = {}: {}; {}\n", spec.name, default_value(spec), allowed_values(spec),
               spec.help);
}

void list(const PluginsCommand& command) {
  const PluginPath path = command.path();
  Json all = Json::array();
  for (const PluginPath::Found& found : path.list()) {
    std::string refused = found.refused;
    Json entry{{"name", found.name}, {"file", found.file.string()}};
    if (refused.empty()) {
      try {
        entry = plugin_json(*load_plugin(found.file));
      } catch (const Error& error) {
        refused = error.what();
      }
    }
    entry["refused"] = refused.empty() ? Json(nullptr) : Json(refused);
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
      fmt::print("{:<20} refused: {}\n", entry["name"].get<std::string>(),
                 entry["refused"].get<std::string>());
  }
  if (!all.empty()) return;
  fmt::print("no policies in:\n");
  for (const std::filesystem::path& directory : path.directories())
    fmt::print("  {}\n", directory.string());
}

void info(const PluginsCommand& command) {
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

void check(const PluginsCommand& command) {
  const auto plugin = load_plugin(command.target);
  const std::vector<PluginTrial> trials = try_plugin(plugin, params_of(command));
  bool passed = true;
  Json rows = Json::array();
  for (const PluginTrial& trial : trials) {
    passed = passed && trial.passed;
    rows.push_back({{"gpu_layer_budget", trial.layers},
                    {"passed", trial.passed},
                    {"lossless", trial.lossless},
                    {"h2d_bytes", trial.h2d_bytes},
                    {"hits", trial.hits},
                    {"misses", trial.misses},
                    {"wasted", trial.wasted},
                    {"refused", trial.refused},
                    {"problem", trial.passed ? Json(nullptr) : Json(trial.problem)}});
  }
  if (!passed) command.exit_code->value = 1;
  if (command.json) {
    Json report = plugin_json(*plugin);
    report["passed"] = passed;
    report["trials"] = std::move(rows);
    fmt::print("{}\n", to_line(report));
    return;
  }
  print_plugin(*plugin);
  fmt::print("OK      loads: ABI, compiler, name and parameters\n");
  for (const PluginTrial& trial : trials) {
    if (trial.passed)
      fmt::print("OK      budget {}: {}, {} moved, {} hits, {} misses, {} wasted\n", trial.layers,
                 trial.lossless ? "tokens as resident" : "lossy, tokens not compared",
                 format_bytes(trial.h2d_bytes), trial.hits, trial.misses, trial.wasted);
    else
      fmt::print("FAILED  budget {}: {}\n", trial.layers, trial.problem);
  }
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
      "check", "loads a policy and tries it on a small model under every budget");
  auto check_options = add_common(check_command, exit_code);
  check_command.add_option("file", check_options->target)->type_name("FILE.so")->required();
  check_command.add_option("--param", check_options->params, "a parameter; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  check_command.callback([check_options] { check(*check_options); });
}

}  // namespace sluice
