#include "models/tokenizer/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace sluice::utf8 {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

// What the bytes at text[at] begin with: a whole code point, a part that can become none, or a part that
// ends with the text and could still become one.
enum class Kind { whole, invalid, incomplete };
struct Sequence {
  Kind kind;
  std::size_t size;
};

Sequence sequence_at(std::string_view text, std::size_t at) {
  const std::uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {Kind::whole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::invalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {Kind::incomplete, i};
    std::uint8_t low = 0x80;
    std::uint8_t high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;   // longer than needed
      if (lead == 0xED) high = 0x9F;  // surrogates
      if (lead == 0xF0) low = 0x90;   // longer than needed
      if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
    }
    const std::uint8_t next = byte_at(text, at + i);
    if (next < low || next > high) return {Kind::invalid, i};
  }
  return {Kind::whole, length};
}

}  // namespace

std::size_t valid_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t eight = 0;
    if (bytes.size() - at >= sizeof eight) {
      std::memcpy(&eight, bytes.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080U) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Sequence sequence = sequence_at(bytes, at);
    if (sequence.kind != Kind::whole) return at;
    at += sequence.size;
  }
  return at;
}

std::size_t append_replacing(std::string& out, std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t valid = valid_prefix(bytes.substr(at));
    out.append(bytes.substr(at, valid));
    at += valid;
    if (at == bytes.size()) break;
    const Sequence sequence = sequence_at(bytes, at);
    if (sequence.kind == Kind::incomplete) break;
    out.append(kReplacement);
    at += sequence.size;
  }
  return at;
}

std::string replace_invalid(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_replacing(out, bytes) < bytes.size()) out.append(kReplacement);
  return out;
}

CodePoint decode(std::string_view text, std::size_t at) {
  const std::uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {lead, 1};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) value = value << 6 | (byte_at(text, at + i) & 0x3FU);
  return {value, size};
}

std::size_t previous(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (byte_at(text, at) & 0xC0U) == 0x80U) --at;
  return at;
}

void append(std::string& out, char32_t code_point) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | code_point >> 6);
    put(0x80U | (code_point & 0x3FU));
  } else if (code_point < 0x10000) {
    put(0xE0U | code_point >> 12);
    put(0x80U | (code_point >> 6 & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  } else {
    put(0xF0U | code_point >> 18);
    put(0x80U | (code_point >> 12 & 0x3FU));
    put(0x80U | (code_point >> 6 & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  }
}

}  // namespace sluice::utf8
