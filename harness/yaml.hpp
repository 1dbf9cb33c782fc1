// A YAML text as a tree whose every node knows its place. Stricter than YAML where YAML surprises:
// duplicate keys, anchors, aliases, merge keys, tags, and keys that are not words are errors.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Where something was said: a file with line and column counted from 1, or an option (line 0).
struct Origin {
  std::string file;
  int line = 0, column = 0;
};
// "FILE:LINE:COL", or the option alone.
std::string to_string(const Origin& place);

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  struct Key {
    std::string name;
    Origin place;
  };

  Kind kind = Kind::null;
  Origin place;
  std::string text;             // of a scalar
  bool quoted = false;          // a quoted scalar is a text, whatever it looks like
  std::vector<Key> keys;        // of a map: keys[i] names items[i]
  std::vector<YamlNode> items;  // of a list or a map, in the order of the file

  const YamlNode* find(std::string_view key) const;
};

// "a list", "the number 3", "the text 'x'", for messages.
std::string describe(const YamlNode& node);

// Throws InputError "FILE:LINE:COL: ..." for anything that is not one document of plain YAML.
YamlNode parse_yaml(const std::string& text, const std::string& file);
// Reads the file first; InputError when it cannot be read.
YamlNode load_yaml(const std::string& file);

}  // namespace sluice
