// Where versions of Unicode differ in a way that the tokenizer can see. Made by
// tests/tokenizer/make_unicode_tables.py from the reference and the data of Unicode 14 and 18.
#pragma once
#include <span>

namespace sluice::unicode {

struct StandIn {
  char32_t first;
  char32_t last;
  char32_t stand_in;
};

struct Range {
  char32_t first;
  char32_t last;
};

// Ascending. Code points whose general category in the reference is not the one in some version of Unicode
// from 14 to 18.
std::span<const StandIn> stand_ins();

// Ascending. Code points that the reference's normaliser leaves alone although a later Unicode has a combining
// class, a decomposition or a composition for them.
std::span<const Range> inert_ranges();

}  // namespace sluice::unicode
