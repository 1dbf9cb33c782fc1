// How deep the sections of a tokenizer file may lie in `Sequence`s: each is read by recursion.
#pragma once
#include "core/json_node.hpp"

namespace sluice {

inline constexpr int kDeepestSequence = 8;

// Throws InputError for a Sequence at this depth, counted from 0.
inline void check_depth(const JsonNode& section, int depth) {
  if (depth == kDeepestSequence) section.fail("sequences more than {} deep", kDeepestSequence);
}

}  // namespace sluice
