#include "models/tokenizer/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "core/error.hpp"
#include "models/tokenizer/unicode_tables.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice::unicode {
namespace {

// The range of an ascending table that holds `code_point`, or the table's end.
template <typename Table>
auto find_range(const Table& table, char32_t code_point) {
  const auto after =
      std::upper_bound(table.begin(), table.end(), code_point,
                       [](char32_t value, const auto& range) { return value < range.first; });
  if (after == table.begin()) return table.end();
  const auto range = std::prev(after);
  return code_point <= range->last ? range : table.end();
}

bool is_inert(char32_t code_point) {
  const auto table = inert_ranges();
  return find_range(table, code_point) != table.end();
}

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(stand_in(code_point)));
}

utf8proc_propval_t combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// The longest canonical or compatibility decomposition has 18 code points.
constexpr std::size_t kDecompositionRoom = 32;

void append_decomposed(std::vector<utf8proc_int32_t>& out, char32_t code_point,
                       utf8proc_option_t options) {
  utf8proc_int32_t buffer[kDecompositionRoom];
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), buffer, kDecompositionRoom,
                              options, &boundary_class);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(kDecompositionRoom)) {
    throw Error("utf8proc cannot decompose U+{:04X}: {}", static_cast<std::uint32_t>(code_point),
                utf8proc_errmsg(count));
  }
  out.insert(out.end(), buffer, buffer + count);
}

// Canonical ordering. utf8proc's own is quadratic in the length of a run of marks.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  auto at = points.begin();
  while (at != points.end()) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, points.end(), [](auto p) { return combining_class(p) == 0; });
    std::stable_sort(at, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

utf8proc_option_t options_of(Form form) {
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  // Digits of Unicode 17, which this one part of the reference knows already.
  if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;
  const utf8proc_category_t of = category(c);
  return of == UTF8PROC_CATEGORY_ND || of == UTF8PROC_CATEGORY_NL || of == UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  // Alphabetic without being a letter, a mark or a letter number.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

char32_t stand_in(char32_t code_point) {
  if (code_point < 0x295 || (code_point >= 0x3200 && code_point < 0xA7CB) ||
      (code_point >= 0xAC00 && code_point < 0xFBC3)) {
    return code_point;  // most text lies here, and the table has nothing here
  }
  const auto table = stand_ins();
  const auto range = find_range(table, code_point);
  return range == table.end() ? code_point : range->stand_in;
}

bool differs_between_versions(char32_t first, char32_t last) {
  const auto table = stand_ins();
  return std::any_of(table.begin(), table.end(), [first, last](const StandIn& row) {
    return (row.first <= last && first <= row.last) ||
           (first <= row.stand_in && row.stand_in <= last);
  });
}

bool needs_stand_ins(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    if (stand_in(point.value) != point.value) return true;
    at += point.size;
  }
  return false;
}

std::string with_stand_ins(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    utf8::append(out, stand_in(point.value));
    at += point.size;
  }
  return out;
}

bool is_surely_normalized(std::string_view text, Form form) {
  // Below U+0300 (lead byte 0xCC) nothing combines; below U+00A0 nothing decomposes either.
  const std::uint8_t first_unsure = form == Form::nfc ? 0xCC : 0x80;
  return std::none_of(text.begin(), text.end(), [first_unsure](char c) {
    return static_cast<std::uint8_t>(c) >= first_unsure;
  });
}

std::string normalize(std::string_view text, Form form) {
  const utf8proc_option_t options = options_of(form);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  const auto flush = [&] {
    order_marks(points);
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
    if (count < 0) throw Error("utf8proc cannot normalize a text: {}", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      utf8::append(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
    }
    points.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    if (is_inert(point.value)) {
      flush();
      utf8::append(out, point.value);
    } else {
      append_decomposed(points, point.value, options);
    }
    at += point.size;
  }
  flush();
  return out;
}

}  // namespace sluice::unicode
