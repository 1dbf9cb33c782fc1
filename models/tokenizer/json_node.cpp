#include "models/tokenizer/json_node.hpp"

#include <fstream>
#include <iterator>

namespace sluice {

std::string read_text_file(const std::filesystem::path& file) {
  std::error_code status;
  if (!std::filesystem::exists(file, status)) throw InputError("{}: no such file", file.string());
  if (!std::filesystem::is_regular_file(file, status)) {
    throw InputError("{}: is not a regular file", file.string());
  }
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw InputError("{}: cannot be read", file.string());
  return text;
}

nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw InputError("{}: is not valid JSON: {}", file.string(), error.what());
  }
}

JsonNode JsonNode::at(std::string_view key) const {
  expect_object();
  const auto found = value_.find(key);
  if (found == value_.end()) fail("the key '{}' is missing", key);
  return {*found, file_, place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key)};
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  expect_object();
  const auto found = value_.find(key);
  if (found == value_.end() || found->is_null()) return std::nullopt;
  return at(key);
}

std::size_t JsonNode::size() const {
  expect_array();
  return value_.size();
}

JsonNode JsonNode::operator[](std::size_t index) const {
  expect_array();
  return {value_.at(index), file_, fmt::format("{}[{}]", place_, index)};
}

const std::string& JsonNode::string() const {
  if (!value_.is_string()) fail("must be a string, is {}", value_.type_name());
  return value_.get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  if (!value_.is_boolean()) fail("must be true or false, is {}", value_.type_name());
  return value_.get<bool>();
}

std::size_t JsonNode::number_up_to(std::size_t limit) const {
  if (!value_.is_number_unsigned()) {
    fail("must be an integer from 0 to {}, is {}", limit,
         value_.is_number() ? value_.dump() : value_.type_name());
  }
  const auto number = value_.get<std::uint64_t>();
  if (number > limit) fail("must be an integer from 0 to {}, is {}", limit, number);
  return static_cast<std::size_t>(number);
}

void JsonNode::expect_object() const {
  if (!value_.is_object()) fail("must be an object, is {}", value_.type_name());
}

void JsonNode::expect_array() const {
  if (!value_.is_array()) fail("must be an array, is {}", value_.type_name());
}

bool JsonNode::boolean_or(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->boolean() : otherwise;
}

std::string JsonNode::string_or(std::string_view key, std::string_view otherwise) const {
  const auto found = find(key);
  return found ? found->string() : std::string(otherwise);
}

void JsonNode::fail_with(const std::string& message) const {
  if (place_.empty()) throw InputError("{}: {}", file_.string(), message);
  throw InputError("{}: {}: {}", file_.string(), place_, message);
}

}  // namespace sluice
