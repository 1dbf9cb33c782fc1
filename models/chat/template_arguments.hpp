// How the arguments of a call meet the parameters of what is called: by place, then by name, as in Python.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/template_value.hpp"

namespace sluice::chat {

// As the template gives them.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Names in order; those before a "/" cannot be given by name.
using Parameters = std::vector<std::string_view>;

class BoundArguments {
 public:
  // Throws InputError for an argument that is left over, with what `function` takes, and for one that is given twice.
  BoundArguments(std::string_view function, const Parameters& parameters,
                 const Arguments& arguments);

  // Not defined where it was not given.
  Value operator[](std::string_view parameter) const;
  // Throws InputError where it was not given.
  Value required(std::string_view parameter) const;
  // Whether it was given, as something else than none.
  bool has(std::string_view parameter) const;

 private:
  std::vector<std::pair<std::string_view, Value>> values_;
};

}  // namespace sluice::chat
