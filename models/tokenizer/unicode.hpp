// What the reference (Hugging Face `tokenizers` 0.23) means by the classes and the normal forms of Unicode,
// whichever version of Unicode the system's PCRE2 and utf8proc know: its regular expressions go by Unicode 16,
// its normaliser by Unicode 9. unicode_tables.cpp holds the code points where versions differ.
#pragma once
#include <string>
#include <string_view>

namespace sluice::unicode {

// White_Space: what \s means, and what a token with lstrip or rstrip takes with it.
bool is_white_space(char32_t code_point);

// General category N, as the pre-tokenizer `Digits` sees it.
bool is_numeric(char32_t code_point);

// A word character (UTS #18): what must not stand beside a token with single_word.
bool is_word(char32_t code_point);

// A code point of the same length in UTF-8, which every version of Unicode since 14 puts in the general
// category that the reference gives `code_point`; mostly `code_point` itself.
char32_t stand_in(char32_t code_point);

// Whether a code point from `first` to `last` has another stand-in or is one, so that naming it in a pattern
// would not mean the same on a subject with stand-ins.
bool differs_between_versions(char32_t first, char32_t last);

// Whether `text` holds a code point with another stand-in, and `text` with each replaced: a subject on which
// the system's PCRE2 matches as the reference would, at the same offsets. `text` is valid UTF-8.
bool needs_stand_ins(std::string_view text);
std::string with_stand_ins(std::string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, Form form);  // `text` is valid UTF-8

// Whether normalize(text, form) would certainly return the same text; false says nothing.
bool is_surely_normalized(std::string_view text, Form form);

}  // namespace sluice::unicode
