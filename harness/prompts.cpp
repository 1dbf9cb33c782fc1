#include "harness/prompts.hpp"

#include "core/error.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

using Kind = YamlNode::Kind;
using Json = nlohmann::json;

constexpr std::int64_t kLongestRandom = 100'000'000;

Json check_ids(const YamlNode& node) {
  if (node.kind != Kind::list || node.items.empty())
    throw InputError("{}: ids must be a list of token ids, at least one, not {}",
                     to_string(node.place), describe(node));
  Json ids = Json::array();
  for (const YamlNode& item : node.items) {
    const auto id = item.kind == Kind::scalar && !item.quoted ? read_integer(item.text)
                                                              : std::optional<ReadInteger>{};
    if (!id || id->overflow || id->value < 0 || id->value > 0x7fffffff)
      throw InputError("{}: a token id is an integer from 0, not {}", to_string(item.place),
                       describe(item));
    ids.push_back(id->value);
  }
  return ids;
}

Json check_prompt(const YamlNode& node) {
  if (node.kind == Kind::scalar && !node.text.empty()) return {{"text", node.text}};
  if (node.kind != Kind::map || node.keys.size() != 1)
    throw InputError("{}: a prompt is a text, {{ids: [..]}} or {{random: LENGTH}}, not {}",
                     to_string(node.place), node.kind == Kind::scalar ? "empty" : describe(node));
  const YamlNode& value = node.items[0];
  const std::string& name = node.keys[0].name;
  if (name == "ids") return {{"ids", check_ids(value)}};
  if (name == "text" && value.kind == Kind::scalar && !value.text.empty())
    return {{"text", value.text}};
  if (name == "random" && value.kind == Kind::scalar) {
    const auto length = read_integer(value.text);
    if (length && !length->overflow && length->value >= 1 && length->value <= kLongestRandom)
      return {{"random", length->value}};
  }
  if (name == "text" || name == "random")
    throw InputError("{}: {} must be {}, not {}", to_string(value.place), name,
                     name == "text" ? "a text that is not empty" : "a number of tokens, at least 1",
                     describe(value));
  throw InputError("{}: unknown kind of prompt '{}'; known: text, ids, random",
                   to_string(node.keys[0].place), name);
}

}  // namespace

Json check_prompts(const YamlNode& list) {
  if (list.kind != Kind::list || list.items.empty())
    throw InputError("{}: prompts must be a list of at least one, not {}", to_string(list.place),
                     list.kind == Kind::list ? "an empty list" : describe(list));
  Json prompts = Json::array();
  for (const YamlNode& item : list.items) prompts.push_back(check_prompt(item));
  return prompts;
}

Json load_prompts(const std::string& file) {
  const YamlNode root = load_yaml(file);
  if (root.kind != Kind::map) return check_prompts(root);
  for (const YamlNode::Key& key : root.keys)
    if (key.name != "prompts")
      throw InputError("{}: unknown key '{}'; known: prompts", to_string(key.place), key.name);
  const YamlNode* list = root.find("prompts");
  if (!list) throw InputError("{}: no prompts; a file of prompts is a list", file);
  return check_prompts(*list);
}

}  // namespace sluice
