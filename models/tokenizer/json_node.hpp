// A value of a JSON file that knows its file and its place, so that whatever is wrong with it is told as
// "FILE: model.vocab: must be an object, is a string".
#pragma once
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace sluice {

// Both throw InputError naming the file and, where the JSON is broken, the place.
std::string read_text_file(const std::filesystem::path& file);
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file);

class JsonNode {
 public:
  // Refers to `root` and `file`, which must outlive the node and all that came from it.
  JsonNode(const nlohmann::json& root, const std::filesystem::path& file)
      : value_(root), file_(file) {}

  const nlohmann::json& raw() const { return value_; }
  const std::filesystem::path& file() const { return file_; }
  bool is_null() const { return value_.is_null(); }

  // Of an object. `at` throws where the key is missing; `find` is empty where it is missing or null.
  JsonNode at(std::string_view key) const;
  std::optional<JsonNode> find(std::string_view key) const;

  // Of an array.
  std::size_t size() const;
  JsonNode operator[](std::size_t index) const;

  // The value, where it has the type; else InputError.
  const std::string& string() const;
  bool boolean() const;
  std::size_t number_up_to(std::size_t limit) const;
  void expect_object() const;
  void expect_array() const;

  // `find(key)` as a boolean or a string, `otherwise` where it is missing or null.
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

  // Throws InputError "FILE: place: message".
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  JsonNode(const nlohmann::json& value, const std::filesystem::path& file, std::string place)
      : value_(value), file_(file), place_(std::move(place)) {}
  [[noreturn]] void fail_with(const std::string& message) const;

  const nlohmann::json& value_;
  const std::filesystem::path& file_;
  std::string place_;
};

}  // namespace sluice
