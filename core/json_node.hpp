// A value of a JSON file that knows its file and its place, so that whatever is wrong with it is told as
// "FILE: model.vocab is 3, an object is needed".
#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

class JsonNode {
 public:
  // `place` is the path to the value within the file, "" for the whole. `value` must outlive the node
  // and all that comes from it.
  JsonNode(const nlohmann::json& value, std::string file, std::string place = "")
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const nlohmann::json& raw() const { return *value_; }
  const std::string& file() const { return file_; }
  bool is_null() const { return value_->is_null(); }

  // Of an object. A key whose value is null counts as missing, which `at` refuses.
  bool has(std::string_view key) const;
  JsonNode at(std::string_view key) const;
  std::optional<JsonNode> find(std::string_view key) const;

  // Of an array.
  std::size_t size() const;
  JsonNode operator[](std::size_t index) const;

  // The value, where it has the type and is between `least` and `most`, both included; else InputError.
  const std::string& string() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number(double least, double most) const;  // finite
  void expect_object() const;
  void expect_array() const;

  // `find(key)` as a boolean or a string, `otherwise` where it is missing.
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

  // "FILE: PLACE" and "FILE: PLACE.KEY", for the beginning of a message.
  std::string where() const;
  std::string where(std::string_view key) const;

  // Throws InputError "FILE: PLACE: message".
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const nlohmann::json* look_up(std::string_view key) const;
  std::string place_of(std::string_view key) const;
  [[noreturn]] void fail_with(const std::string& message) const;
  [[noreturn]] void need(const std::string& what) const;

  const nlohmann::json* value_;
  std::string file_, place_;
};

// A value as a message shows it, cut when long.
std::string shown(const nlohmann::json& value);

}  // namespace sluice
