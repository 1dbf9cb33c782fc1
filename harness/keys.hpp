// The keys of an experiment, declared once: what may stand there, its range, its default and its
// help. Checks, errors, `--set`, `--help-keys` and the reference page follow from this table.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/yaml.hpp"

namespace sluice {

using Json = nlohmann::json;

enum class KeyType : std::uint8_t {
  text,
  integer,
  real,
  boolean,
  size,     // bytes, see read_size
  choice,   // one of `words`
  policy,   // NAME | {NAME: {param: value}} | {plugin: NAME, params: {param: value}}
  rates,    // {SIZE: GB/s, ..}: how fast a copy of each size is; to [[bytes, gbps], ..]
  prompts,  // a file of prompts, or a list, see harness/prompts.hpp
  stops     // a text or a token id, or a list of them
};

struct Key {
  std::string_view path{};  // dotted
  KeyType type = KeyType::text;
  std::string_view fallback{};  // as it would be written; empty: none
  double min = 0, max = 0;      // of integers, reals and sizes; inclusive
  bool above_min = false;       // of reals: `min` itself is out
  std::string_view words{};     // of a choice: "a|b"; of an integer: words that may stand instead
  std::string_view group{};     // of the keys of one group exactly one may be given
  std::string_view needs{};     // means something only beside this key
  std::string_view help{};
};

std::span<const Key> experiment_keys();
const Key* find_key(std::string_view path);  // null: none
bool is_section(std::string_view path);      // keys lie below it

// What may stand there: "an integer, 1 to 1024, or auto".
std::string expected(const Key& key);

// The value, typed. Throws InputError with the place, what was found and what would be right.
Json check_value(const Key& key, const YamlNode& node);
// Of a policy key under `sweep`: lists among the parameters multiply into several values.
std::vector<Json> check_policies(const Key& key, const YamlNode& node);

// Throws InputError for a key that is not in the table, with the nearest names.
[[noreturn]] void unknown_key(std::string_view path, const Origin& place);

// A table of every key for a person.
std::string describe_keys();

}  // namespace sluice
