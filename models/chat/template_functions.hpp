// The filters, tests and methods that a chat template may use.
#pragma once
#include <string>
#include <string_view>

#include "models/chat/template_arguments.hpp"
#include "models/chat/template_value.hpp"

namespace sluice::chat {

// All throw InputError, without the line, where the name is not supported, an argument is one too many, or a value
// has the wrong type.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
bool apply_test(std::string_view name, const Value& value);
bool has_method(std::string_view name, const Value& value);
// Of a method that the value has.
Value call_method(std::string_view name, const Value& value, const Arguments& arguments);

// What {{ value }} prints.
std::string printed(const Value& value);

}  // namespace sluice::chat
