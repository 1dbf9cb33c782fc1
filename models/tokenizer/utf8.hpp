// UTF-8 as the reference handles it: invalid bytes become U+FFFD, one per maximal subpart (the Unicode
// Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"), which is what Python's errors="replace" does.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::utf8 {

// The longest valid prefix of `bytes`, in bytes.
std::size_t valid_prefix(std::string_view bytes);

// Appends `bytes` to `out`, each maximal invalid subpart replaced by U+FFFD, and returns how many bytes of
// `bytes` were consumed: all of them, except a tail (at most 3 bytes) that further bytes could still complete.
std::size_t append_replacing(std::string& out, std::string_view bytes);

// `bytes` with every invalid subpart replaced, an incomplete tail too.
std::string replace_invalid(std::string_view bytes);

// The code point at text[at], and its length in bytes. `text` is valid UTF-8 and at < text.size().
struct CodePoint {
  char32_t value;
  std::size_t size;
};
CodePoint decode(std::string_view text, std::size_t at);

// Where the code point that ends just before `end` begins. `text` is valid UTF-8 and end > 0.
std::size_t previous(std::string_view text, std::size_t end);

void append(std::string& out, char32_t code_point);

}  // namespace sluice::utf8
