// JSON files that people and other programs write: read whole, parsed with limits, and taken apart
// with errors that name the file, the key and what would be right.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// The file's bytes. Throws InputError when it cannot be read or is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Throws InputError, `file` and the place in it named, when `text` is not JSON or is nested deeper
// than 64 levels. Of a key given twice the last value counts.
nlohmann::json parse_json(std::string_view text, const std::string& file);

// An object's members by key. A key whose value is null counts as missing. All throw InputError.
class JsonObject {
 public:
  // `place` is the path to the object within the file, "" for the whole. `value` must live longer.
  JsonObject(const nlohmann::json& value, std::string file, std::string place = "");

  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) const;
  // Finite, between `least` and `most`, both included.
  double number(const char* key, double least, double most) const;
  bool boolean(const char* key) const;
  std::string text(const char* key) const;
  JsonObject object(const char* key) const;

  // "FILE: PLACE.KEY", for the beginning of a message.
  std::string where(const char* key) const;
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json* find(const char* key) const;

  const nlohmann::json* value_;
  std::string file_, place_;
};

// A value as a message shows it, cut when long.
std::string shown(const nlohmann::json& value);

}  // namespace sluice
