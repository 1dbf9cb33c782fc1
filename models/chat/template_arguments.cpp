#include "models/chat/template_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"

namespace sluice::chat {

BoundArguments::BoundArguments(std::string_view function, const Parameters& parameters,
                               const Arguments& arguments) {
  const auto slash = std::find(parameters.begin(), parameters.end(), "/");
  const auto unnamed = slash == parameters.end() ? 0 : slash - parameters.begin();
  Parameters names = parameters;
  std::erase(names, "/");
  const auto refuse = [&](const auto& left_over) {
    throw InputError("the argument {} of '{}' is not supported: it takes ({})", left_over, function,
                     fmt::join(parameters, ", "));
  };
  if (arguments.positional.size() > names.size()) refuse(names.size() + 1);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_.emplace_back(names[i], arguments.positional[i]);
  }
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find(names.begin() + unnamed, names.end(), name);
    if (known == names.end()) refuse("'" + name + "'");
    for (const auto& given : values_) {
      if (given.first == name) throw InputError("'{}' is given '{}' twice", function, name);
    }
    values_.emplace_back(*known, value);
  }
}

Value BoundArguments::operator[](std::string_view parameter) const {
  for (const auto& [name, value] : values_) {
    if (name == parameter) return value;
  }
  return Value::undefined(std::string(parameter));
}

Value BoundArguments::required(std::string_view parameter) const {
  for (const auto& [name, value] : values_) {
    if (name == parameter) return value;
  }
  throw InputError("the argument '{}' is missing", parameter);
}

bool BoundArguments::has(std::string_view parameter) const {
  const Value value = (*this)[parameter];
  return !value.is_undefined() && !(value.is_data() && value.data().is_null());
}

}  // namespace sluice::chat
