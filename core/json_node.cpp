#include "core/json_node.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace sluice {

using json = nlohmann::json;

std::string shown(const json& value) {
  constexpr std::size_t kMost = 60;
  // Broken UTF-8 is replaced: a message must always come out.
  std::string text = value.is_structured() && value.size() > 8
                         ? fmt::format("{} of {} entries", value.type_name(), value.size())
                         : value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

const json* JsonNode::look_up(std::string_view key) const {
  expect_object();
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

std::string JsonNode::place_of(std::string_view key) const {
  return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
}

bool JsonNode::has(std::string_view key) const { return look_up(key) != nullptr; }

JsonNode JsonNode::at(std::string_view key) const {
  const json* value = look_up(key);
  if (!value) throw InputError("{} is missing", where(key));
  return {*value, file_, place_of(key)};
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  const json* value = look_up(key);
  if (!value) return std::nullopt;
  return JsonNode(*value, file_, place_of(key));
}

std::size_t JsonNode::size() const {
  expect_array();
  return value_->size();
}

JsonNode JsonNode::operator[](std::size_t index) const {
  expect_array();
  return {value_->at(index), file_, fmt::format("{}[{}]", place_, index)};
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) need("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) need("true or false");
  return value_->get<bool>();
}

std::int64_t JsonNode::integer(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <=
                              static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                        : value_->is_number_integer();
  const std::int64_t n = fits ? value_->get<std::int64_t>() : 0;
  if (!fits || n < least || n > most) need(fmt::format("an integer from {} to {}", least, most));
  return n;
}

double JsonNode::number(double least, double most) const {
  const double x = value_->is_number() ? value_->get<double>() : std::nan("");
  if (!(x >= least && x <= most))  // a NaN too
    need(fmt::format("a number from {} to {}", least, most));
  return x;
}

void JsonNode::expect_object() const {
  if (!value_->is_object()) need("an object");
}

void JsonNode::expect_array() const {
  if (!value_->is_array()) need("an array");
}

bool JsonNode::boolean_or(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->boolean() : otherwise;
}

std::string JsonNode::string_or(std::string_view key, std::string_view otherwise) const {
  const auto found = find(key);
  return found ? found->string() : std::string(otherwise);
}

std::string JsonNode::where() const {
  return place_.empty() ? file_ : fmt::format("{}: {}", file_, place_);
}

std::string JsonNode::where(std::string_view key) const {
  return fmt::format("{}: {}", file_, place_of(key));
}

void JsonNode::fail_with(const std::string& message) const {
  throw InputError("{}: {}", where(), message);
}

void JsonNode::need(const std::string& what) const {
  if (place_.empty()) throw InputError("{}: is {}, {} is needed", file_, shown(*value_), what);
  throw InputError("{} is {}, {} is needed", where(), shown(*value_), what);
}

}  // namespace sluice
