#include <cmath>

#include "core/error.hpp"
#include "core/nearest.hpp"
#include "harness/keys.hpp"
#include "harness/prompts.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

using Kind = YamlNode::Kind;

[[noreturn]] void wrong(const Key& key, const YamlNode& node, std::string_view found = {}) {
  throw InputError("{}: {} must be {}, not {}", to_string(node.place), key.path, expected(key),
                   found.empty() ? describe(node) : std::string(found));
}

std::vector<std::string> words_of(const Key& key) {
  std::vector<std::string> words;
  std::string_view rest = key.words;
  while (!rest.empty()) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    words.emplace_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return words;
}

bool is_word_of(const Key& key, const std::string& text) {
  for (const std::string& word : words_of(key))
    if (word == text) return true;
  return false;
}

std::string number_text(double value) {
  return value >= 1e18 ? std::string("2^63") : fmt::format("{}", value);
}

std::string range_of_key(const Key& key) {
  if (key.above_min)
    return fmt::format("above {} to {}", number_text(key.min), number_text(key.max));
  return fmt::format("{} to {}", number_text(key.min), number_text(key.max));
}

Json check_integer(const Key& key, const YamlNode& node) {
  if (is_word_of(key, node.text)) return node.text;
  if (node.quoted) wrong(key, node);
  const auto value = read_integer(node.text);
  if (!value) wrong(key, node);
  if (value->overflow || static_cast<double>(value->value) < key.min ||
      static_cast<double>(value->value) > key.max)
    wrong(key, node, node.text);
  return value->value;
}

Json check_real(const Key& key, const YamlNode& node) {
  if (node.quoted) wrong(key, node);
  const auto value = read_real(node.text);
  if (!value) wrong(key, node);
  if (*value < key.min || *value > key.max || (key.above_min && *value == key.min))
    wrong(key, node, node.text);
  return *value;
}

Json check_boolean(const Key& key, const YamlNode& node) {
  const auto value = read_bool(node.text);
  if (node.quoted || !value) wrong(key, node);
  return *value;
}

Json check_size(const Key& key, const YamlNode& node) {
  const auto value = read_size(node.text);
  if (!value) wrong(key, node);
  if (static_cast<double>(*value) < key.min || static_cast<double>(*value) > key.max)
    wrong(key, node, node.text);
  return *value;
}

// Larger pieces may go faster or slower, but none arrives before a smaller one.
Json check_rates(const Key& key, const YamlNode& node) {
  if (node.kind != Kind::map || node.keys.empty()) wrong(key, node);
  Json points = Json::array();
  double last_bytes = 0, last_ns = 0;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const auto& [name, place] = node.keys[i];
    const auto bytes = read_size(name);
    if (!bytes || *bytes == 0)
      throw InputError("{}: in {}, '{}' must be a size like 64KiB or 4MiB, above 0",
                       to_string(place), key.path, name);
    const YamlNode& rate = node.items[i];
    const auto gbps =
        rate.kind == Kind::scalar && !rate.quoted ? read_real(rate.text) : std::nullopt;
    if (!gbps || *gbps <= key.min || *gbps > key.max)
      throw InputError("{}: {} at {} must be a number, {}, not {}", to_string(rate.place), key.path,
                       name, range_of_key(key), describe(rate));
    const auto size = static_cast<double>(*bytes);
    if (size <= last_bytes || size / *gbps < last_ns)
      throw InputError(
          "{}: {} must ascend in size, and no larger copy may take less time; {} at {} "
          "GB/s does not follow what stands before it",
          to_string(place), key.path, name, *gbps);
    last_bytes = size;
    last_ns = size / *gbps;
    points.push_back({*bytes, *gbps});
  }
  return points;
}

Json check_choice(const Key& key, const YamlNode& node) {
  if (is_word_of(key, node.text)) return node.text;
  const auto near = nearest_names(node.text, words_of(key), 1);
  throw InputError("{}: {} must be {}, not {}{}", to_string(node.place), key.path, expected(key),
                   describe(node),
                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near.front()));
}

Json check_stop(const Key& key, const YamlNode& node) {
  if (node.kind != Kind::scalar || node.text.empty()) wrong(key, node);
  const auto id = node.quoted ? std::nullopt : read_integer(node.text);
  if (!id) return node.text;
  if (id->overflow || id->value < 0 || id->value > 0x7fffffff)
    wrong(key, node, fmt::format("the token id {}", node.text));
  return id->value;
}

Json check_stops(const Key& key, const YamlNode& node) {
  Json stops = Json::array();
  if (node.kind == Kind::list)
    for (const YamlNode& item : node.items) stops.push_back(check_stop(key, item));
  else
    stops.push_back(check_stop(key, node));
  return stops;
}

// A policy before its parameters' lists are multiplied out.
struct PolicyForm {
  std::string plugin;
  const YamlNode* params = nullptr;  // a map, or null
};

PolicyForm policy_form(const Key& key, const YamlNode& node) {
  PolicyForm form;
  if (node.kind == Kind::scalar) {
    form.plugin = node.text;
  } else if (node.kind == Kind::map && node.find("plugin")) {
    for (std::size_t i = 0; i < node.keys.size(); ++i)
      if (node.keys[i].name != "plugin" && node.keys[i].name != "params")
        throw InputError("{}: unknown key '{}' beside 'plugin'; known: plugin, params",
                         to_string(node.keys[i].place), node.keys[i].name);
    const YamlNode& plugin = *node.find("plugin");
    if (plugin.kind != Kind::scalar) wrong(key, plugin);
    form.plugin = plugin.text;
    form.params = node.find("params");
  } else if (node.kind == Kind::map && node.keys.size() == 1) {
    form.plugin = node.keys[0].name;
    form.params = node.items.data();
  } else {
    wrong(key, node);
  }
  if (form.plugin.empty()) wrong(key, node, "an empty name");
  if (form.params && form.params->kind == Kind::null) form.params = nullptr;
  if (form.params && form.params->kind != Kind::map)
    throw InputError("{}: the parameters of {} must be a map {{name: value}}, not {}",
                     to_string(form.params->place), form.plugin, describe(*form.params));
  return form;
}

std::vector<Json> policies(const Key& key, const YamlNode& node, bool lists) {
  const PolicyForm form = policy_form(key, node);
  std::vector<Json> out{Json{{"plugin", form.plugin}, {"params", Json::object()}}};
  if (!form.params) return out;
  for (std::size_t i = 0; i < form.params->keys.size(); ++i) {
    const std::string& name = form.params->keys[i].name;
    const YamlNode& given = form.params->items[i];
    std::vector<const YamlNode*> values;
    if (given.kind == Kind::scalar) values.push_back(&given);
    if (given.kind == Kind::list && lists)
      for (const YamlNode& item : given.items) values.push_back(&item);
    else if (given.kind == Kind::list)
      throw InputError("{}: {} of {} is a list; only what stands under 'sweep' is swept",
                       to_string(given.place), name, form.plugin);
    std::vector<Json> multiplied;
    for (const Json& policy : out)
      for (const YamlNode* value : values) {
        if (value->kind != Kind::scalar)
          throw InputError("{}: {} of {} must be a single value, not {}", to_string(value->place),
                           name, form.plugin, describe(*value));
        multiplied.push_back(policy);
        multiplied.back()["params"][name] = value->text;
        if (multiplied.size() > 10'000)
          throw InputError("{}: more than 10000 combinations of parameters", to_string(node.place));
      }
    if (multiplied.empty())
      throw InputError("{}: {} of {} needs a value, not {}", to_string(given.place), name,
                       form.plugin, given.kind == Kind::list ? "an empty list" : describe(given));
    out = std::move(multiplied);
  }
  return out;
}

}  // namespace

std::string expected(const Key& key) {
  switch (key.type) {
    case KeyType::text: return "a text";
    case KeyType::integer: {
      std::string out = "an integer, " + range_of_key(key);
      for (const std::string& word : words_of(key)) out += ", or " + word;
      return out;
    }
    case KeyType::real: return "a number, " + range_of_key(key);
    case KeyType::boolean: return "true or false";
    case KeyType::size: return "a size like 8GiB, 512MiB or 6e9 (bytes), above 0";
    case KeyType::choice: {
      const std::vector<std::string> words = words_of(key);
      std::string out;
      for (std::size_t i = 0; i < words.size(); ++i)
        out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
      return out;
    }
    case KeyType::policy:
      return "NAME, {NAME: {param: value}} or {plugin: NAME, params: {param: value}}";
    case KeyType::rates: return "a map from sizes of copies to rates, like {64KiB: 13, 4MiB: 24.5}";
    case KeyType::prompts:
      return "a file of prompts, or a list of texts, {ids: [..]} and {random: LENGTH}";
    case KeyType::stops: return "a text, a token id, or a list of them";
  }
  return "";
}

Json check_value(const Key& key, const YamlNode& node) {
  if (key.type == KeyType::policy) return policies(key, node, false).front();
  if (key.type == KeyType::rates) return check_rates(key, node);
  if (key.type == KeyType::stops) return check_stops(key, node);
  if (key.type == KeyType::prompts && node.kind == Kind::list) return check_prompts(node);
  if (node.kind != Kind::scalar) wrong(key, node);
  switch (key.type) {
    case KeyType::integer: return check_integer(key, node);
    case KeyType::real: return check_real(key, node);
    case KeyType::boolean: return check_boolean(key, node);
    case KeyType::size: return check_size(key, node);
    case KeyType::choice: return check_choice(key, node);
    default: break;
  }
  if (node.text.empty()) wrong(key, node, "an empty text");
  return node.text;
}

std::vector<Json> check_policies(const Key& key, const YamlNode& node) {
  return policies(key, node, true);
}

}  // namespace sluice
