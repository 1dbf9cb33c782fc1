#include "harness/keys.hpp"

#include <fmt/format.h>

#include <array>

#include "core/error.hpp"
#include "core/nearest.hpp"

namespace sluice {
namespace {

constexpr double kMost = 9.2e18;

constexpr auto kKeys = std::to_array<Key>({
    {.path = "name", .help = "of the experiment, for records; by default the file's name"},

    {.path = "model.path",
     .group = "model",
     .help = "a Hugging Face directory: config.json, safetensors, tokenizer.json; seen from the "
             "experiment's directory, then from the working directory; ~ is the home directory"},
    {.path = "model.synthetic",
     .group = "model",
     .help = "the name of a shape in configs/models: random weights, nothing on disk"},
    {.path = "model.seed",
     .type = KeyType::integer,
     .fallback = "1",
     .max = kMost,
     .needs = "model.synthetic",
     .help = "of the synthetic weights"},
    {.path = "model.routing.zipf",
     .type = KeyType::real,
     .max = 10,
     .help =
         "experts are not the router's choice but synthetic, with the reuse of a trained model: "
         "the n-th most popular is drawn proportional to n^-zipf; 1.2 fits Qwen3-30B-A3B"},
    {.path = "model.routing.stickiness",
     .type = KeyType::real,
     .fallback = "0.25",
     .max = 1,
     .needs = "model.routing.zipf",
     .help = "the probability that an expert of a sequence's last token is kept"},
    {.path = "model.routing.recency",
     .type = KeyType::real,
     .fallback = "0.55",
     .max = 1,
     .needs = "model.routing.zipf",
     .help =
         "of the others: the probability that one comes from those that the sequence used lately, "
         "whatever its popularity"},
    {.path = "model.routing.foresight",
     .type = KeyType::real,
     .fallback = "0.886",
     .max = 1,
     .needs = "model.routing.zipf",
     .help = "for a policy that wants to know the next layer's experts early: how often a guess at "
             "one is "
             "right; 0.886 is what that layer's router was measured to name on Qwen3-30B-A3B"},
    {.path = "model.routing.seed",
     .type = KeyType::integer,
     .fallback = "1",
     .max = kMost,
     .needs = "model.routing.zipf",
     .help = "of the synthetic routing"},

    {.path = "device.kind",
     .type = KeyType::choice,
     .fallback = "cpu",
     .words = "cpu|cuda|sim",
     .help = "where the model runs"},
    {.path = "device.machine",
     .help = "sim only, and needed there: the machine in configs/machines that it imitates, or a "
             "file like those"},
    {.path = "device.memory_limit",
     .type = KeyType::size,
     .min = 1,
     .max = kMost,
     .help = "device memory that may be used; by default what the device has"},
    {.path = "device.pinned_limit",
     .type = KeyType::size,
     .max = kMost,
     .help =
         "bytes of weights that may be pinned; the others pass through a pinned ring, as they do "
         "where the system pins no more"},
    {.path = "device.link_gbps",
     .type = KeyType::real,
     .min = 1e-3,
     .max = 1e6,
     .help = "cpu only: copies of weights are slowed down to this rate, in 1e9 bytes per second"},

    {.path = "policy",
     .type = KeyType::policy,
     .fallback = "ring_prefetch",
     .help = "the plugin that decides which weights are on the device; or resident: everything is; "
             "or mapped: nothing is, and kernels read the weights in host memory"},

    {.path = "budget.gpu_layer_budget",
     .type = KeyType::integer,
     .fallback = "auto",
     .min = 1,
     .max = 1e6,
     .words = "auto",
     .group = "budget",
     .help = "layers' worth of slots on the device; auto: the most that fits"},
    {.path = "budget.bytes",
     .type = KeyType::size,
     .min = 1,
     .max = kMost,
     .group = "budget",
     .help = "slots, staging and head together"},
    {.path = "budget.expert_slots",
     .type = KeyType::integer,
     .min = 1,
     .max = 1e9,
     .group = "budget",
     .help = "experts cached; every other unit is kept"},

    {.path = "dtype",
     .type = KeyType::choice,
     .fallback = "auto",
     .words = "auto|f32|bf16|f16",
     .help = "of activations and KV cache; auto: what config.json says"},

    {.path = "generation.prompts",
     .type = KeyType::prompts,
     .help = "a file of prompts, or a list of texts, {ids: [..]} and {random: LENGTH}"},
    {.path = "generation.max_new_tokens",
     .type = KeyType::integer,
     .fallback = "128",
     .min = 1,
     .max = 1e6,
     .help = "tokens generated for each prompt at most"},
    {.path = "generation.min_new_tokens",
     .type = KeyType::integer,
     .fallback = "0",
     .max = 1e6,
     .help = "stop ids cannot be chosen before"},
    {.path = "generation.greedy",
     .type = KeyType::boolean,
     .help = "always the likeliest token; by default true unless a temperature is given"},
    {.path = "generation.temperature",
     .type = KeyType::real,
     .max = 100,
     .help = "logits are divided by it before a token is drawn; 0 is greedy"},
    {.path = "generation.top_k",
     .type = KeyType::integer,
     .fallback = "0",
     .max = 1e9,
     .help = "draw among this many likeliest tokens; 0: all"},
    {.path = "generation.top_p",
     .type = KeyType::real,
     .fallback = "1",
     .max = 1,
     .above_min = true,
     .help = "draw among the likeliest tokens that have this much probability together"},
    {.path = "generation.min_p",
     .type = KeyType::real,
     .fallback = "0",
     .max = 1,
     .help = "draw among tokens at least this likely, relative to the likeliest"},
    {.path = "generation.seed",
     .type = KeyType::integer,
     .fallback = "1",
     .max = kMost,
     .help = "of the draws, and of random prompts"},
    {.path = "generation.ignore_eos",
     .type = KeyType::boolean,
     .fallback = "false",
     .help = "go on past the model's stop ids"},
    {.path = "generation.stop",
     .type = KeyType::stops,
     .help = "texts or token ids that end a sequence, beside the model's own"},
    {.path = "generation.chat",
     .type = KeyType::boolean,
     .fallback = "false",
     .help = "each text is a user's message in the model's chat format"},
    {.path = "generation.batch",
     .type = KeyType::integer,
     .fallback = "1",
     .min = 1,
     .max = 1024,
     .help = "sequences at once"},
    {.path = "generation.context",
     .type = KeyType::integer,
     .fallback = "auto",
     .min = 1,
     .max = 1e8,
     .words = "auto",
     .help = "positions per sequence in the KV cache; auto: what the prompts need"},

    {.path = "measure.warmup",
     .type = KeyType::integer,
     .fallback = "1",
     .max = 100,
     .help = "runs over all prompts before the clock counts"},
    {.path = "measure.repeats",
     .type = KeyType::integer,
     .fallback = "3",
     .min = 1,
     .max = 1000,
     .help = "measured runs over all prompts; figures are their medians"},
});

std::string_view parent_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::string_view leaf_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Names directly below `section`, of keys and of sections.
std::vector<std::string> names_in(std::string_view section) {
  std::vector<std::string> names;
  const std::string prefix = section.empty() ? "" : std::string(section) + ".";
  for (const Key& key : kKeys) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string_view rest = key.path.substr(prefix.size());
    const std::string name(rest.substr(0, rest.find('.')));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  if (section.empty()) names.push_back("sweep");
  return names;
}

}  // namespace

std::span<const Key> experiment_keys() { return kKeys; }

const Key* find_key(std::string_view path) {
  for (const Key& key : kKeys)
    if (key.path == path) return &key;
  return nullptr;
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  for (const Key& key : kKeys)
    if (key.path.starts_with(prefix)) return true;
  return false;
}

void unknown_key(std::string_view path, const Origin& place) {
  const std::string_view section = parent_of(path);
  const bool known_section = section.empty() || is_section(section);
  const std::vector<std::string> siblings = names_in(known_section ? section : "");
  std::vector<std::string> meant = nearest_names(leaf_of(path), siblings, 1);
  for (std::string& name : meant)
    if (known_section && !section.empty()) name = fmt::format("{}.{}", section, name);
  if (meant.empty())  // right name, wrong section
    for (const Key& key : kKeys)
      if (leaf_of(key.path) == leaf_of(path)) meant.emplace_back(key.path);
  throw InputError("{}: unknown key '{}'{}{}", to_string(place), path,
                   meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant.front()),
                   fmt::format(" Known {}: {}",
                               known_section && !section.empty() ? fmt::format("in '{}'", section)
                                                                 : std::string("keys"),
                               fmt::join(siblings, ", ")));
}

std::string describe_keys() {
  std::string out;
  for (const Key& key : kKeys) {
    out += fmt::format("{}: {}\n", key.path, expected(key));
    out += fmt::format("    {}\n", key.help);
    if (!key.fallback.empty()) out += fmt::format("    default: {}\n", key.fallback);
    if (!key.needs.empty()) out += fmt::format("    only with {}\n", key.needs);
  }
  out += "sweep: a map from any key above, written with dots, to a list of values\n";
  out += "    each list is an axis; a cell is one combination of values\n";
  return out;
}

}  // namespace sluice
