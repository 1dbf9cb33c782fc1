// Rotary position embedding: how fast each pair of a head's elements turns, and the tables of
// cosines and sines that the kernels read. The arithmetic is the reference's, step by step in f32
// (Hugging Face transformers 5, modeling_rope_utils.py): a frequency that is off by one rounding
// turns a far position visibly.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/config.hpp"

namespace sluice {

// Radians per position of element i and i + head_dim / 2, [head_dim / 2].
std::vector<float> rope_frequencies(const RopeConfig& rope, std::uint32_t head_dim);

// Fills cos and sin, both [positions, head_dim / 2], the attention factor multiplied in.
void fill_rope_tables(const RopeConfig& rope, std::uint32_t head_dim, std::uint32_t positions,
                      std::span<float> cos, std::span<float> sin);

}  // namespace sluice
