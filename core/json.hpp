// JSON that people and other programs write, parsed with limits.
#pragma once
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice {

// All throw InputError "FILE:LINE:COLUMN: ..." when `text` is not one JSON document and nothing
// behind it, or is nested deeper than 64 levels. Of a key given twice the last value counts.
// `first_line`: of a text that is a part of the file, its line there.
nlohmann::json parse_json(std::string_view text, const std::string& file,
                          std::size_t first_line = 1);
// With the keys of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file);

// Reads the file first, which may have `max_bytes`.
nlohmann::json load_json(const std::filesystem::path& path, std::uint64_t max_bytes);

// For documents too large to be kept as a tree. A reader takes what it wants out of the parser's
// events, and refuses by itself what is nested deeper than it can be.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& error) final;

 private:
  friend void parse_json_events(std::string_view, const std::string&, JsonEvents&);
  std::size_t position_ = 0;
  std::string problem_;
};
void parse_json_events(std::string_view text, const std::string& file, JsonEvents& reader);

}  // namespace sluice
