// A text taken line by line and field by field, for readers of formats that are lines of fields.
// Whatever is wrong is a std::invalid_argument that begins with the line: "line 7: ".
#pragma once
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice {

// To be derived from. The text must outlive it.
class LineReader {
 protected:
  explicit LineReader(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  bool next_begins_with(char first) const { return rest_.starts_with(first); }
  std::size_t line() const { return line_; }  // that was taken last, from 1 on
  // Without what ends it.
  std::string_view take_line() {
    ++line_;
    std::string_view line = cut(rest_, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw std::invalid_argument("line " + std::to_string(line_) + ": " + why);
  }

  // Takes what lies before the first `at`, or all, from `text`.
  static std::string_view cut(std::string_view& text, char at) {
    const std::string_view before = text.substr(0, text.find(at));
    text.remove_prefix(std::min(before.size() + 1, text.size()));
    return before;
  }
  // What a message shows of a field.
  static std::string shown(std::string_view text) {
    return "'" + std::string(text.substr(0, 40)) + "'";
  }
  // A whole number from 0 to `most`; `what` names it in the message.
  std::uint64_t number(std::string_view text, std::string_view what, std::uint64_t most) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value > most)
      fail(std::string(what) + " " + shown(text) + " is no whole number from 0 to " +
           std::to_string(most));
    return value;
  }

 private:
  std::string_view rest_;
  std::size_t line_ = 0;
};

}  // namespace sluice
