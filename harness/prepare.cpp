#include "harness/prepare.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/weights/hash.hpp"
#include "harness/machine_file.hpp"
#include "harness/results_file.hpp"
#include "harness/transfers.hpp"
#include "models/decoder.hpp"
#include "models/model_files.hpp"

namespace sluice {
namespace {

// A parameter as its type, for the record.
Json typed(const ParamSpec& spec, const std::string& value) {
  switch (spec.type) {
    case ParamType::integer: return std::stoll(value);
    case ParamType::real: return std::stod(value);
    case ParamType::boolean: return value == "true";
    case ParamType::text: break;
  }
  return value;
}

// An error about the policy or its parameters, at its place in the experiment.
template <typename F>
auto at_place(const Origin& place, const F& f) {
  try {
    return f();
  } catch (const InputError& error) {
    if (place.file.empty()) throw;
    throw InputError("{}: {}", to_string(place), error.what());
  }
}

void prepare_policy(PreparedCell& cell, PluginCache& plugins) {
  const PolicyChoice& policy = cell.experiment.policy;
  if (cell.is_mapped()) return;
  std::span<const ParamSpec> specs = kResidentParams;
  if (!cell.is_resident()) {
    cell.plugin = at_place(policy.place, [&] { return plugins.load(policy.name); });
    specs = cell.plugin->params();
  }
  const ParamValues all = at_place(
      policy.place, [&] { return CheckedParams(policy.name, specs, policy.params).all(); });
  Json& params = cell.experiment.inputs["policy"]["params"];
  params = Json::object();
  for (const ParamSpec& spec : specs) params[spec.name] = typed(spec, all.at(spec.name));
}

void prepare_prompts(PreparedCell& cell) {
  const GenerationChoice& generation = cell.experiment.generation;
  if (generation.prompts.is_null())
    throw InputError("{}: no prompts; give generation: {{prompts: FILE or a list}}",
                     cell.experiment.name);
  for (std::size_t i = 0; i < generation.prompts.size(); ++i)
    cell.prompts.push_back(prompt_ids(generation.prompts[i], i, *cell.model, generation));
}

void prepare_context(PreparedCell& cell) {
  const GenerationChoice& generation = cell.experiment.generation;
  const std::uint64_t positions = Decoder::max_context(cell.model->source.config);
  std::uint64_t needed = 0;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < cell.prompts.size(); ++i) {
    const std::uint64_t need = cell.prompts[i].size() + generation.max_new_tokens;
    if (need > needed) longest = i;
    needed = std::max(needed, need);
  }
  const std::uint64_t context = generation.context.value_or(needed);
  if (context > positions)
    throw InputError("{}: a context of {} is beyond the {} positions of {}", cell.experiment.name,
                     context, positions, cell.model->name);
  if (needed > context)
    throw InputError(
        "{}: prompt {} has {} tokens, and {} new ones make {}, beyond the context of {}; ask for "
        "fewer tokens or a larger generation.context",
        cell.experiment.name, longest + 1, cell.prompts[longest].size(), generation.max_new_tokens,
        needed, context);
  cell.context = static_cast<std::uint32_t>(context);
  cell.batch = std::min(generation.batch, static_cast<std::uint32_t>(cell.prompts.size()));
}

void check_ids(const std::vector<std::int32_t>& ids, const Model& model, const std::string& what) {
  for (std::int32_t id : ids)
    if (id < 0 || id >= model.source.config.vocab)
      throw InputError("{}: the token id {} is not one of {}, whose ids are 0 to {}", what, id,
                       model.name, model.source.config.vocab - 1);
}

std::string as_user_message(const std::string& text, const Model& model) {
  ChatRequest request;
  request.messages.push_back({{"role", "user"}, {"content", text}});
  return model.chat_format().render(request);
}

// What decides a result beside its inputs: the content of the files that these only name.
std::string identity(const PreparedCell& cell) {
  const Model& model = *cell.model;
  Json content = {{"inputs", cell.experiment.inputs},
                  {"model", model.source.tensors->describe()},
                  {"stop_ids", model.generation.stop_ids},
                  {"prompts", cell.prompts}};
  if (model.directory)
    content["config"] = read_file(*model.directory / kConfigName, kLargestModelFile);
  if (const auto& machine = cell.experiment.device.machine) content["machine"] = to_json(*machine);
  if (cell.plugin) content["plugin"] = cell.plugin->fingerprint();
  const Instruments& instruments = cell.instruments;
  if (instruments.audit) content["audit"] = true;
  if (!instruments.trace.empty()) content["trace"] = true;
  if (!instruments.decisions.empty()) content["decisions"] = true;
  if (!instruments.routing_file.empty()) content["routing"] = true;
  const std::string text = to_line(content);
  const auto bytes = std::as_bytes(std::span(text));
  return fmt::format("{:016x}{:016x}", hash_bytes(bytes, 1), hash_bytes(bytes, 2));
}

}  // namespace

std::shared_ptr<const Plugin> PluginCache::load(const std::string& name) {
  std::shared_ptr<const Plugin>& plugin = plugins_[name];
  if (!plugin) plugin = load_plugin(path_.find(name));
  return plugin;
}

std::vector<std::int32_t> prompt_ids(const Json& prompt, std::size_t index, const Model& model,
                                     const GenerationChoice& generation) {
  const auto vocab = static_cast<std::uint64_t>(model.source.config.vocab);
  const std::string what = fmt::format("prompt {}", index + 1);
  std::vector<std::int32_t> ids;
  if (prompt.contains("ids")) {
    ids = prompt["ids"].get<std::vector<std::int32_t>>();
  } else if (prompt.contains("random")) {
    const auto length = prompt["random"].get<std::uint64_t>();
    std::uint64_t state = mix(generation.sampling.seed + kGolden * (index + 1));
    for (std::uint64_t i = 0; i < length; ++i) {
      state += kGolden;
      ids.push_back(static_cast<std::int32_t>(mix(state) % vocab));
    }
  } else {
    const std::string text = prompt["text"].get<std::string>();
    ids = generation.chat ? model.text().encode(as_user_message(text, model))
                          : model.text().encode(text, true);
  }
  if (ids.empty()) throw InputError("{}: no tokens in it", what);
  check_ids(ids, model, what);
  return ids;
}

PreparedCell prepare(Experiment experiment, ModelCache& models, PluginCache& plugins,
                     Instruments instruments) {
  PreparedCell cell;
  cell.instruments = std::move(instruments);
  cell.experiment = std::move(experiment);
  cell.model = &models.open(cell.experiment.model);
  cell.dtype = cell.experiment.dtype.value_or(cell.model->source.config.dtype);
  models.host(cell.experiment.device);
  if (cell.experiment.routing && cell.model->source.config.experts.count == 0)
    throw InputError("{}: model.routing is given, but {} has no experts", cell.experiment.name,
                     cell.model->name);
  prepare_policy(cell, plugins);
  prepare_prompts(cell);
  prepare_context(cell);
  check_ids(cell.experiment.generation.stop_ids, *cell.model, "generation.stop");

  cell.id = identity(cell);
  return cell;
}

}  // namespace sluice
