// Parameters as an experiment gives them, checked against what a plugin declares.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sluice/plugin.hpp"

namespace sluice {

// Name to value as written. What a YAML file or `--param key=value` says.
using ParamValues = std::map<std::string, std::string>;

constexpr std::string_view name_of(ParamType type) {
  constexpr std::array<std::string_view, 4> names{"integer", "real", "boolean", "text"};
  return names[static_cast<std::size_t>(type)];
}

// What a value of this parameter may be, for help and messages: "an integer from 1 to 64".
std::string allowed_values(const ParamSpec& spec);
// The default as it would be written.
std::string default_value(const ParamSpec& spec);

// Throws InputError when the table makes no sense: a name that is missing, no bare word or given
// twice, an unknown type, a default out of range. `owner` begins the message.
void check_specs(std::string_view owner, std::span<const ParamSpec> specs);

// Throws InputError for an unknown name (with the nearest) and for a value of the wrong type or out
// of range (with what is allowed). `owner` is the policy's name.
class CheckedParams final : public Params {
 public:
  CheckedParams(std::string owner, std::span<const ParamSpec> specs, const ParamValues& values);

  // Throw Error for a parameter that was not declared, or was declared as another type.
  std::int64_t integer(std::string_view name) const override;
  double real(std::string_view name) const override;
  bool boolean(std::string_view name) const override;
  std::string_view text(std::string_view name) const override;

  // Every parameter with its value, defaults included, for records.
  ParamValues all() const;

 private:
  using Value = std::variant<std::int64_t, double, bool, std::string>;  // index: ParamType
  Value parse(const ParamSpec& spec, const std::string& written) const;
  const Value& find(std::string_view name, ParamType type) const;

  std::string owner_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace sluice
