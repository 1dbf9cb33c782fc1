#include "core/plugin/params.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/nearest.hpp"

namespace sluice {
namespace {

// The whole text as a number, or nothing. "inf" and "nan" are no numbers here.
template <typename T>
std::optional<T> number_from(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::string number_text(ParamType type, double value) {
  return type == ParamType::integer ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

bool is_number(ParamType type) { return type == ParamType::integer || type == ParamType::real; }

bool in_range(const ParamSpec& spec, double value) {
  return value >= spec.min && value <= spec.max;  // false for a NaN
}

std::vector<std::string_view> choices_of(const ParamSpec& spec) {
  std::vector<std::string_view> out;
  for (std::string_view rest = spec.choices ? spec.choices : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    out.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

bool is_choice(const ParamSpec& spec, std::string_view text) {
  const std::vector<std::string_view> choices = choices_of(spec);
  return choices.empty() || std::ranges::find(choices, text) != choices.end();
}

bool is_bare_word(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

std::string allowed_values(const ParamSpec& spec) {
  switch (spec.type) {
    case ParamType::integer:
    case ParamType::real:
      return fmt::format("{} from {} to {}",
                         spec.type == ParamType::integer ? "an integer" : "a number",
                         number_text(spec.type, spec.min), number_text(spec.type, spec.max));
    case ParamType::boolean: return "true or false";
    case ParamType::text: break;
  }
  const std::vector<std::string_view> choices = choices_of(spec);
  return choices.empty() ? "a text" : fmt::format("{}", fmt::join(choices, " or "));
}

std::string default_value(const ParamSpec& spec) {
  switch (spec.type) {
    case ParamType::integer:
    case ParamType::real: return number_text(spec.type, spec.fallback);
    case ParamType::boolean: return spec.fallback != 0 ? "true" : "false";
    case ParamType::text: break;
  }
  return spec.text_fallback ? spec.text_fallback : "";
}

void check_specs(std::string_view owner, std::span<const ParamSpec> specs) {
  std::vector<std::string_view> seen;
  for (const ParamSpec& spec : specs) {
    const std::string_view name = spec.name ? spec.name : "";
    const auto refuse = [&](std::string_view why) {
      throw InputError("{}: its table of parameters is wrong: parameter {} ('{}') {}", owner,
                       seen.size() + 1, name, why);
    };
    if (!is_bare_word(name)) refuse("needs a name of lower-case letters, digits and underscores");
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) refuse("is declared twice");
    if (spec.type > ParamType::text) refuse("has an unknown type");
    if (!spec.help) refuse("has no help text");
    if (is_number(spec.type) && !in_range(spec, spec.fallback))
      refuse(fmt::format("has the default {}, which is not {}", default_value(spec),
                         allowed_values(spec)));
    if (spec.type == ParamType::integer && spec.fallback != std::trunc(spec.fallback))
      refuse(fmt::format("is an integer with the default {}", spec.fallback));
    if (spec.type == ParamType::text && !is_choice(spec, default_value(spec)))
      refuse(fmt::format("has the default '{}', which is not {}", default_value(spec),
                         allowed_values(spec)));
    seen.push_back(name);
  }
}

CheckedParams::CheckedParams(std::string owner, std::span<const ParamSpec> specs,
                             const ParamValues& values)
    : owner_(std::move(owner)) {
  std::vector<std::string> known;
  for (const ParamSpec& spec : specs) {
    known.emplace_back(spec.name);
    const auto given = values.find(spec.name);
    values_.emplace(spec.name,
                    parse(spec, given == values.end() ? default_value(spec) : given->second));
  }
  for (const auto& [name, value] : values) {
    if (values_.contains(name)) continue;
    if (known.empty()) throw InputError("policy '{}' has no parameters, so no '{}'", owner_, name);
    throw InputError("policy '{}' has no parameter '{}'{}; it has: {}", owner_, name,
                     did_you_mean(name, known), fmt::join(known, ", "));
  }
}

CheckedParams::Value CheckedParams::parse(const ParamSpec& spec, const std::string& written) const {
  switch (spec.type) {
    case ParamType::integer:
      if (const auto value = number_from<std::int64_t>(written);
          value && in_range(spec, static_cast<double>(*value)))
        return *value;
      break;
    case ParamType::real:
      if (const auto value = number_from<double>(written); value && in_range(spec, *value))
        return *value;
      break;
    case ParamType::boolean:
      if (written == "true" || written == "false") return written == "true";
      break;
    case ParamType::text:
      if (is_choice(spec, written)) return written;
      break;
  }
  throw InputError("parameter '{}' of policy '{}' is '{}'; it must be {}", spec.name, owner_,
                   written, allowed_values(spec));
}

const CheckedParams::Value& CheckedParams::find(std::string_view name, ParamType type) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw Error("policy '{}' asks for its parameter '{}', which it does not declare", owner_, name);
  const auto declared = static_cast<ParamType>(found->second.index());
  if (declared != type)
    throw Error("policy '{}' asks for its parameter '{}' as {}, but declares it as {}", owner_,
                name, name_of(type), name_of(declared));
  return found->second;
}

std::int64_t CheckedParams::integer(std::string_view name) const {
  return std::get<std::int64_t>(find(name, ParamType::integer));
}

double CheckedParams::real(std::string_view name) const {
  return std::get<double>(find(name, ParamType::real));
}

bool CheckedParams::boolean(std::string_view name) const {
  return std::get<bool>(find(name, ParamType::boolean));
}

std::string_view CheckedParams::text(std::string_view name) const {
  return std::get<std::string>(find(name, ParamType::text));
}

ParamValues CheckedParams::all() const {
  ParamValues out;
  for (const auto& [name, value] : values_)
    out.emplace(name, std::visit([](const auto& v) { return fmt::format("{}", v); }, value));
  return out;
}

}  // namespace sluice
