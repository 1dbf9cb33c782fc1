#include "models/chat/python_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/error.hpp"
#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice::python {
namespace {

constexpr int kDeepestValue = 500;

void append_escaped(std::string& out, std::string_view text, bool ascii_only) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    const auto value = static_cast<std::uint32_t>(point.value);
    switch (value) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (value < 0x20 || (ascii_only && value >= 0x7F && value < 0x10000)) {
          out += fmt::format("\\u{:04x}", value);
        } else if (ascii_only && value >= 0x10000) {
          const std::uint32_t above = value - 0x10000;
          out +=
              fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
        } else {
          out += text.substr(at, point.size);
        }
    }
    at += point.size;
  }
  out += '"';
}

class Writer {
 public:
  Writer(std::string& out, const JsonStyle& style) : out_(out), style_(style) {
    separators_ = style.separators.value_or(JsonStyle::Separators{style.indent ? "," : ", ", ": "});
  }

  void write(const Json& value, int depth) {
    if (depth > kDeepestValue)
      throw InputError("a value is nested more than {} deep", kDeepestValue);
    if (value.is_object()) {
      write_object(value, depth);
    } else if (value.is_array()) {
      open('[');
      bool first = true;
      for (const Json& element : value) {
        separate(first, depth);
        write(element, depth + 1);
      }
      close(']', first, depth);
    } else if (value.is_string()) {
      append_escaped(out_, value.get_ref<const std::string&>(), style_.ascii_only);
    } else if (value.is_number_float()) {
      out_ += number(value.get<double>());
    } else {
      out_ += value.dump();
    }
  }

 private:
  // JSON has no word for these; Python writes what JavaScript calls them.
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void open(char bracket) { out_ += bracket; }

  void separate(bool& first, int depth) {
    if (!first) out_ += separators_.item;
    first = false;
    if (style_.indent) new_line(depth + 1);
  }

  void close(char bracket, bool empty, int depth) {
    if (!empty && style_.indent) new_line(depth);
    out_ += bracket;
  }

  void new_line(int depth) {
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void write_object(const Json& value, int depth) {
    std::vector<std::pair<std::string_view, const Json*>> entries;
    for (const auto& [key, element] : value.items()) entries.emplace_back(key, &element);
    if (style_.sort_keys) std::sort(entries.begin(), entries.end());
    open('{');
    bool first = true;
    for (const auto& [key, element] : entries) {
      separate(first, depth);
      append_escaped(out_, key, style_.ascii_only);
      out_ += separators_.key;
      write(*element, depth + 1);
    }
    close('}', first, depth);
  }

  std::string& out_;
  const JsonStyle& style_;
  JsonStyle::Separators separators_;
};

}  // namespace

std::string to_json(const Json& value, const JsonStyle& style) {
  std::string out;
  Writer(out, style).write(value, 0);
  return out;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.data() + e + 1);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = text.front() == '-' ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out.append(".").append(digits, 1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

bool is_space(char32_t code_point) {
  return unicode::is_white_space(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

std::string_view strip(std::string_view text, bool left, bool right,
                       std::optional<std::string_view> set) {
  const auto goes = [&set](std::string_view character) {
    return set ? set->find(character) != std::string_view::npos
               : is_space(utf8::decode(character, 0).value);
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (left && begin < end) {
    const std::size_t size = utf8::decode(text, begin).size;
    if (!goes(text.substr(begin, size))) break;
    begin += size;
  }
  while (right && end > begin) {
    const std::size_t previous = utf8::previous(text, end);
    if (!goes(text.substr(previous, end - previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

}  // namespace sluice::python
