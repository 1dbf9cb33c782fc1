#include "harness/commands/options.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace sluice {
namespace {

const Key& key_of(const std::string& path) {
  const Key* key = find_key(path);
  if (!key) throw Error("no such key: {}", path);
  return *key;
}

}  // namespace

std::vector<Override> model_overrides(const std::string& model, const std::string& option) {
  constexpr std::string_view kSynthetic = "synthetic:";
  if (!model.starts_with(kSynthetic)) return {plain_override("model.path", model, option)};
  const std::string name = model.substr(kSynthetic.size());
  const std::size_t colon = name.find(':');
  std::vector<Override> out{plain_override("model.synthetic", name.substr(0, colon), option)};
  if (colon != std::string::npos)
    out.push_back(plain_override("model.seed", name.substr(colon + 1), option));
  for (Override& part : out) part.value.place.file = option + " " + model;
  return out;
}

std::vector<Override> param_overrides(const std::vector<std::string>& params,
                                      const std::string& option) {
  std::vector<Override> out;
  for (const std::string& param : params) {
    const std::size_t equals = param.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InputError("{} {}: must be KEY=VALUE", option, param);
    out.push_back(plain_override("policy.params." + param.substr(0, equals),
                                 param.substr(equals + 1), option));
    out.back().value.place.file = option + " " + param;
  }
  return out;
}

void ExperimentOptions::add_key(CLI::App& command, const std::string& name,
                                const std::string& key) {
  const Key& spec = key_of(key);
  const std::string help = fmt::format("{}: {}", expected(spec), spec.help);
  if (spec.type == KeyType::boolean) {
    command.add_flag_callback(
        name, [this, key, name] { given_.push_back(plain_override(key, "true", name)); }, help);
    return;
  }
  command
      .add_option_function<std::string>(
          name,
          [this, key, name](const std::string& value) {
            given_.push_back(plain_override(key, value, name));
          },
          help)
      ->type_name(key);
}

void ExperimentOptions::add_to(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--policy",
          [this](const std::string& name) {
            given_.push_back(plain_override("policy", name, "--policy"));
          },
          "the plugin that decides what is on the device, or resident: everything is")
      ->type_name("NAME");
  command.add_option("--param", params_, "a parameter of the policy; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_key(command, "--gpu-layer-budget", "budget.gpu_layer_budget");
  add_key(command, "--expert-slots", "budget.expert_slots");
  add_device(command);
  add_key(command, "--dtype", "dtype");
  command.add_option("--plugin-dir", plugin_dirs_, "where else policies are; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
}

void ExperimentOptions::add_device(CLI::App& command) {
  add_key(command, "--device", "device.kind");
  add_key(command, "--machine", "device.machine");
  command.add_option("--set", sets_, "gives any key of an experiment a value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void ExperimentOptions::add_instruments(CLI::App& command) {
  command.add_flag("--audit", instruments_.audit,
                   "proves that every access to memory is in order; a race fails the run");
  command
      .add_option("--trace", instruments_.trace,
                  "writes what happened when, for ui.perfetto.dev; it takes some time")
      ->type_name("FILE.json");
  command
      .add_option("--decisions", instruments_.decisions,
                  "writes what the policy decided, a line each; see `sluice replay`")
      ->type_name("FILE.jsonl");
}

void ExperimentOptions::add_keys(CLI::App& command, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    std::string name = key.substr(key.rfind('.') + 1);
    std::replace(name.begin(), name.end(), '_', '-');
    add_key(command, "--" + name, key);
  }
}

void ExperimentOptions::add_model(CLI::App& command) {
  command
      .add_option("--model", model_,
                  "a Hugging Face directory, or synthetic:NAME[:SEED] for random weights")
      ->type_name("MODEL")
      ->required();
}

std::vector<Override> ExperimentOptions::overrides() const {
  std::vector<Override> out;
  for (const std::string& set : sets_) out.push_back(parse_override(set, "--set"));
  if (!model_.empty())
    for (Override& part : model_overrides(model_, "--model")) out.push_back(std::move(part));
  out.insert(out.end(), given_.begin(), given_.end());
  for (Override& param : param_overrides(params_, "--param")) out.push_back(std::move(param));
  return out;
}

PluginCache ExperimentOptions::plugins() const {
  return PluginCache(PluginPath({plugin_dirs_.begin(), plugin_dirs_.end()}));
}

}  // namespace sluice
