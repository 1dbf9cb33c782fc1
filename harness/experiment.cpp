#include "harness/experiment.hpp"

#include <filesystem>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/named_files.hpp"
#include "core/plugin/plugin_file.hpp"
#include "core/weights/hash.hpp"
#include "harness/machine_file.hpp"
#include "harness/paths.hpp"
#include "harness/prompts.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

std::string at(const Settings& settings, std::string_view path) {
  const Setting* setting = settings.find(path);
  return setting ? to_string(setting->place) : std::string(path);
}

// Whoever names a shape where a directory is expected is told how shapes are asked for.
std::string shape_hint(const std::string& name) {
  std::error_code error;
  if (is_path(name, ".json") ||
      !std::filesystem::exists(configs_directory() / "models" / (name + ".json"), error))
    return "";
  return fmt::format(
      "; random weights of that shape: synthetic:{0} on the command line, "
      "{{synthetic: {0}}} in an experiment",
      name);
}

}  // namespace

ModelLocation model_location(const Settings& settings, const std::string& file) {
  if (const Setting* path = settings.find("model.path")) {
    const std::string name = path->value.get<std::string>();
    const std::filesystem::path found = find_path(name, path->place, "model", shape_hint(name));
    if (!directory_exists(found))
      throw InputError("{}: model '{}' is no directory: {}", to_string(path->place), name,
                       found.string());
    return CheckpointLocation{found};
  }
  if (settings.find("model.synthetic"))
    return SyntheticLocation{settings.value("model.synthetic").get<std::string>(),
                             settings.value("model.seed").get<std::uint64_t>()};
  throw InputError("{}: no model; give model: {{path: DIRECTORY}} or model: {{synthetic: NAME}}",
                   file.empty() ? "model" : file);
}

namespace {

DeviceSpec make_device_spec(const Settings& settings) {
  DeviceSpec spec;
  const std::string kind = settings.value("device.kind").get<std::string>();
  spec.kind = kind == "cuda" ? DeviceKind::cuda : kind == "sim" ? DeviceKind::sim : DeviceKind::cpu;
  if (settings.find("device.memory_limit"))
    spec.memory_limit = settings.value("device.memory_limit").get<std::uint64_t>();
  if (settings.find("device.link_gbps")) {
    if (spec.kind != DeviceKind::cpu)
      throw InputError("{}: device.link_gbps slows the cpu device down; {} has a link of its own",
                       at(settings, "device.link_gbps"), kind);
    spec.link_gbps = settings.value("device.link_gbps").get<double>();
  }
  const Setting* machine = settings.find("device.machine");
  if (machine && spec.kind != DeviceKind::sim)
    throw InputError("{}: device.machine is what sim imitates; the device is {}",
                     at(settings, "device.machine"), kind);
  if (machine)
    spec.machine = load_machine(machine->value.get<std::string>(), machine->place);
  else if (spec.kind == DeviceKind::sim)
    throw InputError("{}: sim needs a device.machine to imitate: {}, or a file like those",
                     at(settings, "device.kind"), known_machines());
  return spec;
}

}  // namespace

PolicyChoice policy_choice(const Settings& settings) {
  const Json value = settings.value("policy");
  PolicyChoice choice{value["plugin"].get<std::string>(), value["params"].get<ParamValues>(),
                      settings.place("policy")};
  if (choice.name == kMappedPolicy && !choice.params.empty())
    throw InputError("{}: {} has no parameters, so '{}' means nothing", at(settings, "policy"),
                     choice.name, choice.params.begin()->first);
  return choice;
}

BudgetSpec budget_spec(const Settings& settings) {
  if (settings.find("budget.bytes"))
    return ByteBudget{settings.value("budget.bytes").get<std::uint64_t>()};
  if (settings.find("budget.expert_slots"))
    return ExpertBudget{settings.value("budget.expert_slots").get<std::uint32_t>()};
  const Json layers = settings.value("budget.gpu_layer_budget");
  if (layers.is_string()) return AutoBudget{};
  return LayerBudget{layers.get<std::uint32_t>()};
}

namespace {

std::optional<SyntheticRoutingParams> make_routing(const Settings& settings) {
  if (!settings.find("model.routing.zipf")) return std::nullopt;
  const auto real = [&](const char* key) { return settings.value(key).get<double>(); };
  return SyntheticRoutingParams{real("model.routing.zipf"), real("model.routing.stickiness"),
                                real("model.routing.recency"), real("model.routing.foresight"),
                                settings.value("model.routing.seed").get<std::uint64_t>()};
}

std::optional<DType> make_dtype(const Settings& settings) {
  const std::string name = settings.value("dtype").get<std::string>();
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(type)) return type;
  return std::nullopt;
}

SamplingParams make_sampling(const Settings& settings) {
  SamplingParams sampling;
  sampling.top_k = settings.value("generation.top_k").get<std::int32_t>();
  sampling.top_p = settings.value("generation.top_p").get<float>();
  sampling.min_p = settings.value("generation.min_p").get<float>();
  sampling.seed = settings.value("generation.seed").get<std::uint64_t>();
  sampling.min_new_tokens = settings.value("generation.min_new_tokens").get<std::uint32_t>();
  const Setting* greedy = settings.find("generation.greedy");
  const Setting* temperature = settings.find("generation.temperature");
  if (!greedy && !temperature)
    for (const char* key : {"generation.top_k", "generation.top_p", "generation.min_p"})
      if (settings.find(key) &&
          settings.value(key) != Json(find_key(key)->path == "generation.top_p" ? 1 : 0))
        throw InputError("{}: {} changes nothing while decoding is greedy; give a temperature too",
                         at(settings, key), key);
  const float given = temperature ? temperature->value.get<float>() : 0.0f;
  if (greedy && greedy->value.get<bool>() && given > 0)
    throw InputError("{}: greedy and a temperature of {} exclude each other",
                     to_string(greedy->place), given);
  if (greedy && !greedy->value.get<bool>() && temperature && given == 0)
    throw InputError("{}: a temperature of 0 is greedy, but greedy is false",
                     to_string(temperature->place));
  sampling.temperature = greedy && !greedy->value.get<bool>() && !temperature ? 1.0f : given;
  return sampling;
}

// Puts the prompts of a file in place of its name; the record has the name and a hash.
void read_prompts(const Settings& settings, Experiment& experiment) {
  const Setting* given = settings.find("generation.prompts");
  if (!given) return;
  Json& shown = experiment.inputs["generation"]["prompts"];
  Json& prompts = experiment.generation.prompts;
  prompts = given->value;
  Json summary = Json::object();
  if (given->value.is_string()) {
    summary["file"] = given->value;
    prompts = load_prompts(
        find_path(given->value.get<std::string>(), given->place, "the file of prompts").string());
  }
  const std::string text = prompts.dump(-1, ' ', false, Json::error_handler_t::replace);
  summary["count"] = prompts.size();
  summary["hash"] = fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(text)), 0));
  shown = std::move(summary);
}

GenerationChoice make_generation(const Settings& settings) {
  GenerationChoice choice;
  choice.max_new_tokens = settings.value("generation.max_new_tokens").get<std::uint32_t>();
  choice.sampling = make_sampling(settings);
  if (choice.sampling.min_new_tokens > choice.max_new_tokens)
    throw InputError("{}: min_new_tokens {} is beyond max_new_tokens {}",
                     at(settings, "generation.min_new_tokens"), choice.sampling.min_new_tokens,
                     choice.max_new_tokens);
  choice.ignore_eos = settings.value("generation.ignore_eos").get<bool>();
  choice.chat = settings.value("generation.chat").get<bool>();
  const Json stops = settings.value("generation.stop");
  if (!stops.is_null())
    for (const Json& stop : stops) {
      if (stop.is_string())
        choice.stop_texts.push_back(stop.get<std::string>());
      else
        choice.stop_ids.push_back(stop.get<std::int32_t>());
    }
  choice.batch = settings.value("generation.batch").get<std::uint32_t>();
  const Json context = settings.value("generation.context");
  if (context.is_number()) choice.context = context.get<std::uint32_t>();
  return choice;
}

}  // namespace

Experiment make_experiment(const Settings& settings, const std::string& file) {
  settings.check_groups();
  Experiment experiment;
  experiment.inputs = settings.to_json();
  experiment.name = settings.find("name") ? settings.value("name").get<std::string>()
                    : file.empty()        ? "the command line"
                                          : std::filesystem::path(file).stem().string();
  experiment.inputs["name"] = experiment.name;
  experiment.model = model_location(settings, file);
  if (const auto* checkpoint = std::get_if<CheckpointLocation>(&experiment.model))
    experiment.inputs["model"]["path"] = checkpoint->directory.string();
  experiment.routing = make_routing(settings);
  experiment.device = make_device_spec(settings);
  if (settings.find("device.pinned_limit"))
    experiment.pinned_limit = settings.value("device.pinned_limit").get<std::uint64_t>();
  experiment.policy = policy_choice(settings);
  experiment.budget = budget_spec(settings);
  // No budget changes what these do: cells that differ in nothing else are one.
  if (is_reserved_policy(experiment.policy.name)) experiment.inputs["budget"] = nullptr;
  experiment.dtype = make_dtype(settings);
  experiment.generation = make_generation(settings);
  experiment.inputs["generation"]["greedy"] = experiment.generation.sampling.temperature == 0;
  read_prompts(settings, experiment);
  experiment.warmup = settings.value("measure.warmup").get<std::uint32_t>();
  experiment.repeats = settings.value("measure.repeats").get<std::uint32_t>();
  if (experiment.device.kind == DeviceKind::sim) {
    // Virtual time is the same each time, but where experts lie in a cache from the time before.
    if (!experiment.routing) experiment.warmup = 0;
    experiment.repeats = 1;
    experiment.inputs["measure"] = {{"warmup", experiment.warmup}, {"repeats", 1}};
  }
  return experiment;
}

std::string policy_label(const Json& inputs) {
  const Json& policy = inputs.at("policy");
  std::string label = policy.at("plugin").get<std::string>();
  for (const auto& [name, value] : policy.at("params").items())
    label +=
        fmt::format(" {}={}", name, value.is_string() ? value.get<std::string>() : value.dump());
  return label;
}

std::string budget_label(const Json& inputs) {
  if (inputs.at("policy").at("plugin") == kResidentPolicy) return "all";
  if (inputs.at("policy").at("plugin") == kMappedPolicy) return "none";
  const Json& budget = inputs.at("budget");
  if (budget.contains("bytes")) return format_bytes(budget["bytes"].get<std::uint64_t>());
  if (budget.contains("expert_slots"))
    return fmt::format("{} experts", budget["expert_slots"].get<std::uint64_t>());
  const Json& layers = budget.at("gpu_layer_budget");
  return layers.is_string() ? layers.get<std::string>() : fmt::format("{}", layers.get<int>());
}

}  // namespace sluice
