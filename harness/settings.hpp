// What an experiment says, key by key, each value checked and with its place; and the cells that its
// sweep makes of it.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/keys.hpp"

namespace sluice {

struct Setting {
  Json value;
  Origin place;
};

// Values by dotted path; what is absent has its default.
class Settings {
 public:
  const Setting* find(std::string_view path) const;
  // Gives `path` a value in place of any other key of its group and of what needs those.
  void set(const Key& key, Setting setting);
  // The value, or the key's default; null when it has none.
  Json value(std::string_view path) const;
  Origin place(std::string_view path) const;  // of its value; an empty one for a default
  // Every key that has a value or a default, as nested objects.
  Json to_json() const;
  // Throws InputError when two keys of a group are given, or one without the key that it needs.
  void check_groups() const;
  void erase(std::string_view path) { values_.erase(std::string(path)); }
  void insert(const Key& key, Setting setting) {
    values_[std::string(key.path)] = std::move(setting);
  }

 private:
  std::map<std::string, Setting, std::less<>> values_;
};

// A value given on the command line in place of the file's.
struct Override {
  std::string path;
  YamlNode value;
};
// From "a.b=c", the value in YAML; `option` names it in errors. Throws InputError.
Override parse_override(const std::string& assignment, const std::string& option);
// A single plain value, not parsed.
Override plain_override(std::string path, std::string value, std::string option);

struct Axis {
  std::string path;
  std::vector<Setting> values;
};

struct Document {
  Settings base;
  std::vector<Axis> axes{};  // in the order of the file

  // As if `path` had not been given, nor swept.
  void forget(std::string_view path);
};

// Overrides are applied in order; one of a swept key fixes that axis. `policy.params.NAME` sets a
// parameter of every policy. Throws InputError with the place for whatever is not right.
Document read_document(const YamlNode& root, std::span<const Override> overrides);

// The combinations of all axes, the first axis slowest. Throws InputError for more than 10000.
std::vector<Settings> expand(const Document& document);

}  // namespace sluice
