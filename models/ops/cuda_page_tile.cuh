// A page's keys, or values, of one head on their way into a block's shared memory.
#pragma once
#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_mma.cuh"
#include "models/ops/kernel_args.hpp"

namespace sluice {

inline constexpr int kTileThreads = 256;  // of a block that brings a tile
inline constexpr int kTileRows = kPageTokens;

// A head's values in shared memory are padded with zeros to pieces of 16 bytes.
__host__ __device__ inline std::uint32_t padded(std::uint32_t dim) { return (dim + 7) / 8 * 8; }

// In shared memory rows lie this much further apart than they
// are long, so that reading two of them at once meets different banks.
inline constexpr std::uint32_t kRowGapBytes = 64;
template <typename T>
__device__ inline std::uint32_t row_width(std::uint32_t dim) {
  return padded(dim) + kRowGapBytes / sizeof(T);
}

// Begins to bring rows [0, count) of a tile; the rest become zeros, as a weight of zero times a NaN
// that happens to lie there is a NaN.
template <typename T>
__device__ inline void fill_tile(T* tile, const T* from, int dim, int count) {
  constexpr int kPiece = 16 / sizeof(T);
  const int width = row_width<T>(dim);
  if (dim % kPiece == 0) {
    const int pieces = dim / kPiece;
    for (int i = threadIdx.x; i < kTileRows * pieces; i += kTileThreads) {
      const int row = i / pieces, at = i % pieces * kPiece;
      copy_async(tile + row * width + at, from + row * dim + at, row < count);
    }
    if (dim % 8 == 0) return;
  }
  for (int i = threadIdx.x; i < kTileRows * int(padded(dim)); i += kTileThreads) {
    const int row = i / padded(dim), at = i % padded(dim);
    if (dim % kPiece == 0 && at < dim) continue;
    tile[row * width + at] = row < count && at < dim ? from[row * dim + at] : from_float<T>(0.0f);
  }
}

}  // namespace sluice
