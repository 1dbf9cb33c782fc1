// How Python writes values as text: what a chat template's filter `tojson` and its {{ }} print.
#pragma once
#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace sluice::python {

using Json = nlohmann::ordered_json;

struct JsonStyle {
  struct Separators {
    std::string item, key;
  };
  bool ascii_only = false;                 // ensure_ascii
  std::optional<std::string> indent{};     // of one level; none: all on one line
  std::optional<Separators> separators{};  // none: ", " and ": ", with an indent "," and ": "
  bool sort_keys = false;
};

// json.dumps() with these settings. Throws InputError where the value is nested more than 500 deep.
std::string to_json(const Json& value, const JsonStyle& style = {});

// repr() of a float: the shortest digits that read back as the same number; inf, -inf and nan.
std::string float_repr(double value);

// str.isspace() of one character.
bool is_space(char32_t code_point);

// str.strip() and its one-sided kin: white space, or the characters of `set`. All texts are valid UTF-8.
std::string_view strip(std::string_view text, bool left, bool right,
                       std::optional<std::string_view> set);

}  // namespace sluice::python
