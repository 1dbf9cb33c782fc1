// The filters, tests and methods that a chat template may use.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/template_value.hpp"

namespace sluice::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or with the name; not defined where there is none.
  Value get(std::size_t index, std::string_view name) const;
};

// All throw InputError, without the line, where the name is not supported or a value has the wrong type.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
bool apply_test(std::string_view name, const Value& value);
bool has_method(std::string_view name, const Value& value);
Value call_method(std::string_view name, const Value& value, const Arguments& arguments);

// What {{ value }} prints.
std::string printed(const Value& value);

}  // namespace sluice::chat
