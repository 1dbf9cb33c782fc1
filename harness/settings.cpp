#include "harness/settings.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace sluice {
namespace {

using Kind = YamlNode::Kind;
constexpr std::string_view kParamPrefix = "policy.params.";

// A default as check_value would have given it.
Json fallback_of(const Key& key) {
  if (key.fallback.empty()) return nullptr;
  YamlNode node;
  node.kind = Kind::scalar;
  node.text = key.fallback;
  return check_value(key, node);
}

// The value stands on the command line, which has no lines.
void place_at_option(YamlNode& node) {
  node.place.line = 0;
  for (YamlNode::Key& key : node.keys) key.place.line = 0;
  for (YamlNode& item : node.items) place_at_option(item);
}

const Key& require_key(std::string_view path) {
  const Key* key = find_key(path);
  if (!key) throw Error("no such key: {}", path);
  return *key;
}

// Calls `take(key, node)` for each key at or below `path`.
template <typename Take>
void walk(const std::string& path, const YamlNode& node, const Origin& key_place,
          const Take& take) {
  if (const Key* key = find_key(path)) return take(*key, node);
  if (!is_section(path)) unknown_key(path, key_place);
  if (node.kind == Kind::null) return;
  if (node.kind != Kind::map)
    throw InputError("{}: {} must be a map of keys, not {}", to_string(node.place), path,
                     describe(node));
  for (std::size_t i = 0; i < node.keys.size(); ++i)
    walk(path + "." + node.keys[i].name, node.items[i], node.keys[i].place, take);
}

Axis read_axis(const std::string& path, const Origin& place, const YamlNode& list) {
  const Key* key = find_key(path);
  if (!key && is_section(path))
    throw InputError("{}: an axis is one key written with dots, like {}.NAME: [..]",
                     to_string(place), path);
  if (!key) unknown_key(path, place);
  if (list.kind != Kind::list || list.items.empty())
    throw InputError("{}: an axis is a list of values, not {}", to_string(list.place),
                     list.kind == Kind::list ? "an empty list" : describe(list));
  Axis axis{path, {}};
  for (const YamlNode& item : list.items) {
    const std::vector<Json> values = key->type == KeyType::policy
                                         ? check_policies(*key, item)
                                         : std::vector<Json>{check_value(*key, item)};
    for (const Json& value : values) {
      for (const Setting& known : axis.values)
        if (known.value == value)
          throw InputError("{}: this value of {} stands twice; the first is at {}",
                           to_string(item.place), path, to_string(known.place));
      axis.values.push_back({value, item.place});
    }
  }
  return axis;
}

void check_axis_groups(const std::vector<Axis>& axes, const std::vector<Origin>& places) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Key& a = require_key(axes[i].path);
      const Key& b = require_key(axes[j].path);
      if (!a.group.empty() && a.group == b.group)
        throw InputError("{}: {} and {} exclude each other; only one can be an axis",
                         to_string(places[i]), a.path, b.path);
    }
}

void read_sweep(const YamlNode& sweep, std::vector<Axis>& axes) {
  if (sweep.kind == Kind::null) return;
  if (sweep.kind != Kind::map)
    throw InputError("{}: sweep must be a map from keys to lists, not {}", to_string(sweep.place),
                     describe(sweep));
  std::vector<Origin> places;
  for (std::size_t i = 0; i < sweep.keys.size(); ++i) {
    axes.push_back(read_axis(sweep.keys[i].name, sweep.keys[i].place, sweep.items[i]));
    places.push_back(sweep.keys[i].place);
  }
  check_axis_groups(axes, places);
}

bool same_choice(const Key& a, const Key& b) {
  return a.path == b.path || (!a.group.empty() && a.group == b.group);
}

void apply(const Override& override_, Document& document) {
  const std::string& path = override_.path;
  const YamlNode& value = override_.value;
  if (path.starts_with("sweep.")) {
    Axis axis = read_axis(path.substr(6), value.place, value);
    const Key& key = require_key(axis.path);
    for (Axis& known : document.axes)
      if (same_choice(require_key(known.path), key)) {
        known = std::move(axis);
        return;
      }
    document.axes.push_back(std::move(axis));
    return;
  }
  walk(path, value, value.place, [&](const Key& key, const YamlNode& node) {
    document.base.set(key, {check_value(key, node), node.place});
    std::erase_if(document.axes,
                  [&](const Axis& axis) { return same_choice(require_key(axis.path), key); });
  });
}

void set_param(Setting& policy, const std::string& name, const std::string& value) {
  policy.value["params"][name] = value;
}

// A parameter for every policy: the base's, and each of an axis; then equal ones are one.
void apply_param(const Override& override_, Document& document) {
  const std::string name = override_.path.substr(kParamPrefix.size());
  if (name.empty() || override_.value.kind != Kind::scalar)
    throw InputError("{}: a parameter is NAME=VALUE with a single value",
                     to_string(override_.value.place));
  Setting base{document.base.value("policy"), override_.value.place};
  set_param(base, name, override_.value.text);
  document.base.set(require_key("policy"), std::move(base));
  for (Axis& axis : document.axes) {
    if (axis.path != "policy") continue;
    std::vector<Setting> kept;
    for (Setting& setting : axis.values) {
      set_param(setting, name, override_.value.text);
      const bool known = std::any_of(kept.begin(), kept.end(), [&](const Setting& other) {
        return other.value == setting.value;
      });
      if (!known) kept.push_back(std::move(setting));
    }
    axis.values = std::move(kept);
  }
}

}  // namespace

const Setting* Settings::find(std::string_view path) const {
  const auto found = values_.find(path);
  return found == values_.end() ? nullptr : &found->second;
}

void Settings::set(const Key& key, Setting setting) {
  if (!key.group.empty())
    for (const Key& other : experiment_keys())
      if (other.group == key.group && other.path != key.path) {
        values_.erase(std::string(other.path));
        for (const Key& dependent : experiment_keys())
          if (dependent.needs == other.path) values_.erase(std::string(dependent.path));
      }
  insert(key, std::move(setting));
}

Json Settings::value(std::string_view path) const {
  if (const Setting* setting = find(path)) return setting->value;
  const Key& key = require_key(path);
  if (!key.group.empty())  // the default of a group gives way to any key of it
    for (const Key& other : experiment_keys())
      if (other.group == key.group && find(other.path)) return nullptr;
  if (!key.needs.empty() && !find(key.needs)) return nullptr;
  return fallback_of(key);
}

Origin Settings::place(std::string_view path) const {
  const Setting* setting = find(path);
  return setting ? setting->place : Origin{};
}

Json Settings::to_json() const {
  Json out = Json::object();
  for (const Key& key : experiment_keys()) {
    Json value = this->value(key.path);
    if (value.is_null()) continue;
    Json* at = &out;
    std::string_view rest = key.path;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      at = &(*at)[std::string(rest.substr(0, dot))];
      rest.remove_prefix(dot + 1);
    }
    (*at)[std::string(rest)] = std::move(value);
  }
  return out;
}

void Settings::check_groups() const {
  for (const auto& [path, setting] : values_) {
    const Key& key = require_key(path);
    for (const auto& [other_path, other] : values_) {
      const Key& other_key = require_key(other_path);
      if (path < other_path && !key.group.empty() && key.group == other_key.group)
        throw InputError("{}: {} and {} exclude each other; {} stands at {}",
                         to_string(setting.place), path, other_path, other_path,
                         to_string(other.place));
    }
    if (!key.needs.empty() && !find(key.needs))
      throw InputError("{}: {} means something only beside {}", to_string(setting.place), path,
                       key.needs);
  }
}

void Document::forget(std::string_view path) {
  base.erase(path);
  std::erase_if(axes, [&](const Axis& axis) { return axis.path == path; });
}

Override parse_override(const std::string& assignment, const std::string& option) {
  const std::string name = fmt::format("{} {}", option, assignment);
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) throw InputError("{}: must be KEY=VALUE", name);
  Override out{assignment.substr(0, equals), parse_yaml(assignment.substr(equals + 1), name)};
  if (out.value.kind == Kind::null) throw InputError("{}: a value is missing after '='", name);
  place_at_option(out.value);
  return out;
}

Override plain_override(std::string path, std::string value, std::string option) {
  Override out{std::move(path), {}};
  out.value.kind = Kind::scalar;
  out.value.place.file = fmt::format("{} {}", option, value);
  out.value.text = std::move(value);
  return out;
}

Document read_document(const YamlNode& root, std::span<const Override> overrides) {
  Document document;
  if (root.kind == Kind::null && overrides.empty())
    throw InputError("{}: the experiment is empty", to_string(root.place));
  if (root.kind != Kind::map && root.kind != Kind::null)
    throw InputError("{}: an experiment is a map of keys, not {}", to_string(root.place),
                     describe(root));
  for (std::size_t i = 0; i < root.keys.size(); ++i) {
    if (root.keys[i].name == "sweep") {
      read_sweep(root.items[i], document.axes);
      continue;
    }
    walk(root.keys[i].name, root.items[i], root.keys[i].place,
         [&](const Key& key, const YamlNode& node) {
           document.base.insert(key, {check_value(key, node), node.place});
         });
  }
  document.base.check_groups();
  for (const Override& override_ : overrides)
    if (!override_.path.starts_with(kParamPrefix)) apply(override_, document);
  for (const Override& override_ : overrides)
    if (override_.path.starts_with(kParamPrefix)) apply_param(override_, document);
  document.base.check_groups();
  return document;
}

std::vector<Settings> expand(const Document& document) {
  std::size_t count = 1;
  for (const Axis& axis : document.axes) {
    count *= axis.values.size();
    if (count > 10'000)
      throw InputError("{}: the sweep has more than 10000 cells",
                       to_string(axis.values.front().place));
  }
  std::vector<Settings> cells{document.base};
  for (const Axis& axis : document.axes) {
    const Key& key = require_key(axis.path);
    std::vector<Settings> multiplied;
    for (const Settings& cell : cells)
      for (const Setting& value : axis.values) {
        multiplied.push_back(cell);
        multiplied.back().set(key, value);
      }
    cells = std::move(multiplied);
  }
  return cells;
}

}  // namespace sluice
