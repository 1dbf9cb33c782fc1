// Scratch memory of the CPU kernels.
#pragma once
#include <cstddef>

namespace sluice::cpu {

// Scratch memory of the calling thread, aligned for vectors and kept until the thread ends. Each
// purpose has its own block, valid until the same thread asks for the same purpose again.
enum class Scratch : unsigned char {
  packed_rows,   // a block of activations in f32
  weight_panel,  // rows of weights in f32
  sums,          // accumulators of a tile
  results,       // of a tile, in f32
  queries,
  keys,
  values,
  scores,
  partials,      // of attention to one span
  states,        // of attention merged so far
  side_by_side,  // partials of all spans
  count
};
float* scratch(Scratch purpose, std::size_t floats);

}  // namespace sluice::cpu
