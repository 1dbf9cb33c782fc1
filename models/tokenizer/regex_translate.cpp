// From Oniguruma's pattern (syntax of Ruby) to PCRE2's.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "models/tokenizer/regex.hpp"
#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// White_Space and the rest, as members of a class: PCRE2's own \s has U+180E too.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

constexpr std::array<std::string_view, 36> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"};

constexpr std::array<std::string_view, 7> kGroups = {
    "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    if (utf8::valid_prefix(in_) != in_.size()) refuse("invalid UTF-8", in_.size());
    bool caseless = false;
    if (starts_with("(?i)")) {
      copy(4);
      caseless = true;
    }
    caseless_.push_back(caseless);
    while (at_ < in_.size()) item();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::size_t from) const {
    throw InputError(
        "the regular expression '{}' uses {} at byte {}, which this program does not support", in_,
        what, from);
  }

  bool starts_with(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }
  void copy(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  void item() {
    switch (peek()) {
      case '\\': escape_outside(); return;
      case '[': char_class(); return;
      case '(': open_group(); return;
      case ')':
        if (caseless_.size() > 1) caseless_.pop_back();
        copy(1);
        return;
      case '{': interval(); return;
      default: {
        const utf8::CodePoint point = utf8::decode(in_, at_);
        check_literal(point.value, point.value);
        copy(point.size);
      }
    }
  }

  void open_group() {
    if (peek(1) == '*') refuse("'(*'", at_);
    std::size_t length = 1;
    bool caseless = caseless_.back();
    if (peek(1) == '?') {
      const auto* const group = std::find_if(kGroups.begin(), kGroups.end(),
                                             [this](auto open) { return starts_with(open); });
      if (group == kGroups.end()) refuse(fmt::format("'(?{}'", in_.substr(at_ + 2, 1)), at_);
      length = group->size();
      caseless = caseless || *group == "(?i:";
    }
    caseless_.push_back(caseless);
    copy(length);
  }

  // {n}, {n,}, {n,m} and {,m}; any other brace stands for itself.
  void interval() {
    std::size_t end = at_ + 1;
    std::string low;
    std::string high;
    while (end < in_.size() && is_digit(in_[end])) low += in_[end++];
    const bool comma = end < in_.size() && in_[end] == ',';
    if (comma) {
      ++end;
      while (end < in_.size() && is_digit(in_[end])) high += in_[end++];
    }
    if (end >= in_.size() || in_[end] != '}' || (low.empty() && high.empty())) {
      out_ += R"(\{)";
      ++at_;
      return;
    }
    const std::size_t from = at_;
    at_ = end + 1;
    if (low.empty()) low.push_back('0');
    out_ += comma ? fmt::format("{{{},{}}}", low, high) : fmt::format("{{{}}}", low);
    if (peek() == '+' || (peek() == '?' && !comma)) {
      refuse(fmt::format("an interval followed by '{}'", peek()), from);
    }
  }

  void escape_outside() {
    switch (peek(1)) {
      case 's':
        out_ += fmt::format("[{}]", kSpaces);
        at_ += 2;
        return;
      case 'S':
        out_ += fmt::format("[^{}]", kSpaces);
        at_ += 2;
        return;
      case 'A':
      case 'z': copy(2); return;
      default:
        if (property_or_digit()) return;
        check_literal_and_put(escaped_literal());
    }
  }

  // \p{..}, \P{..}, \d and \D, which are the same within a class.
  bool property_or_digit() {
    const char kind = peek(1);
    if (kind == 'd' || kind == 'D') {
      out_ += kind == 'd' ? R"(\p{Nd})" : R"(\P{Nd})";
      at_ += 2;
      return true;
    }
    if (kind != 'p' && kind != 'P') return false;
    const std::size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse("'\\p' without braces", at_);
    const std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
      refuse(fmt::format("the property '{}' (general categories like L or Nd are supported)", name),
             at_);
    }
    if (caseless_.back() && (name == "Lu" || name == "Ll" || name == "Lt")) {
      refuse(fmt::format("the property '{}' without regard to case", name), at_);
    }
    copy(close + 1 - at_);
    return true;
  }

  // The code point that the escape at at_ stands for.
  char32_t escaped_literal() {
    const std::size_t from = at_;
    if (at_ + 1 >= in_.size()) refuse("a '\\' with nothing behind it", at_);
    const utf8::CodePoint point = utf8::decode(in_, at_ + 1);
    at_ += 1 + point.size;
    switch (point.value) {
      case 't': return 0x09;
      case 'n': return 0x0A;
      case 'v': return 0x0B;
      case 'f': return 0x0C;
      case 'r': return 0x0D;
      case 'a': return 0x07;
      case 'e': return 0x1B;
      case 'u': return hexadecimal(4, from);
      case 'x': {
        if (peek() != '{') {
          const char32_t value = hexadecimal(2, from);
          if (value >= 0x80) refuse("a byte that is not a character", from);
          return value;
        }
        ++at_;
        const std::size_t close = in_.find('}', at_);
        const std::size_t digits = close == std::string_view::npos ? 0 : close - at_;
        const char32_t value = hexadecimal(std::min<std::size_t>(digits, 9), from);
        ++at_;
        return value;
      }
      default:
        if (point.value < 0x80 && (is_ascii_letter(static_cast<char>(point.value)) ||
                                   is_digit(static_cast<char>(point.value)))) {
          refuse(fmt::format("'\\{}'", static_cast<char>(point.value)), from);
        }
        return point.value;
    }
  }

  char32_t hexadecimal(std::size_t digits, std::size_t from) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) digits = 0;
      value = value << 4 | static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (digits == 0 || digits > 8 || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      refuse("a malformed code point", from);
    }
    return value;
  }

  void put(char32_t value) {
    out_ += fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(value));
  }

  void check_literal(char32_t first, char32_t last) const {
    if (last >= 0x80 && unicode::differs_between_versions(first, last)) {
      refuse("a character whose class differs between versions of Unicode", at_);
    }
  }

  void check_literal_and_put(char32_t value) {
    check_literal(value, value);
    put(value);
  }

  void char_class() {
    const std::size_t from = at_;
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') refuse("an empty class", from);
    while (peek() != ']' || at_ >= in_.size()) {
      if (at_ >= in_.size()) refuse("a class that is not closed", from);
      class_member();
    }
    copy(1);
  }

  void class_member() {
    if (peek() == '[') refuse("a class within a class", at_);
    if (starts_with("&&")) refuse("'&&'", at_);
    if (peek() == '\\') {
      if (peek(1) == 's' || peek(1) == 'S') {
        out_ += peek(1) == 's' ? kSpaces : kNotSpaces;
        at_ += 2;
        return;
      }
      if (property_or_digit()) return;
    }
    const char32_t first = class_literal();
    if (peek() != '-' || peek(1) == ']') {
      check_literal_and_put(first);
      return;
    }
    ++at_;
    if (peek() == '[' ||
        (peek() == '\\' && (std::string_view("sSdDpP").find(peek(1)) != std::string_view::npos))) {
      refuse("a range that does not end with a character", at_);
    }
    const char32_t last = class_literal();
    check_literal(first, last);
    put(first);
    out_ += '-';
    put(last);
  }

  char32_t class_literal() {
    if (at_ >= in_.size()) refuse("a class that is not closed", at_);
    if (peek() == '\\') return escaped_literal();
    const utf8::CodePoint point = utf8::decode(in_, at_);
    at_ += point.size;
    return point.value;
  }

  std::string_view in_;
  std::string out_;
  std::size_t at_ = 0;
  std::vector<bool> caseless_;  // of each open group
};

}  // namespace

std::string translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

std::string escape_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<std::uint8_t>(c) < 0x80) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace sluice
