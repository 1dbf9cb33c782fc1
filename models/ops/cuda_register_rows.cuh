// The heart of the kernels of experts' pairs, whose weights are under way in registers: they read
// activations through the first-level cache, of which a FIFO in shared memory leaves little. Measured on an
// H200 with one row and all of Qwen3-30B-A3B's experts: 369 tokens/s, and 306 with the FIFO. (With one row
// shared memory has room for its activations as well: see cuda_routed_experts.cu.)
#pragma once
#include "models/ops/cuda_few_rows.cuh"

namespace sluice {

inline constexpr int kPieces = 2;  // of 16 bytes that a lane reads of a row at a time

// Where a lane reads the two rows of a group that are its: fragment rows g and g + 8.
template <typename Format>
struct GroupRows {
  typename Format::Row upper, lower;

  // From weight `first` on.
  __device__ GroupRows(const StoredMatrix& m, std::uint32_t n, bool gated, std::uint32_t group,
                       int g, int first)
      : upper(Format::row(m, row_of_group(n, gated, group, g))),
        lower(Format::row(m, row_of_group(n, gated, group, g + 8))) {
    move_on(first);
  }
  __device__ void move_on(int by) {
    upper = Format::moved_on(upper, by);
    lower = Format::moved_on(lower, by);
  }
};

template <typename Format>
struct WeightPieces {
  static constexpr int kSpan =
      4 * Format::kPieceWeights;  // of a row that four lanes read at a time

  typename Format::Piece upper[kPieces], lower[kPieces];

  // At a distance from where `rows` stand, which is at weight `base` of k.
  template <bool kWholeRounds>
  __device__ void load(const GroupRows<Format>& rows, int distance, int base, int k) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int further = distance + piece * kSpan;
      upper[piece] = Format::template load<kWholeRounds>(rows.upper, further, base + further, k);
      lower[piece] = Format::template load<kWholeRounds>(rows.lower, further, base + further, k);
    }
  }
};

// Weights of a row that the warps which share it have under way, with `unroll` times the pieces of a
// lane.
template <typename Format>
constexpr std::uint32_t round_weights(int warps, int unroll) {
  return warps * unroll * kPieces * WeightPieces<Format>::kSpan;
}

// The activations that a lane multiplies with: those of its token in each tile of 8.
template <typename T, int kTiles>
struct Activations {
  const T* of_token[kTiles];
  const T* zeros;  // as many as a piece has, for columns behind the end of a row

  // row_of(token): its activations, of `tokens`. A lane without a token has the first one's, and makes
  // sums that are nobody's.
  template <typename RowOf>
  __device__ Activations(std::uint32_t tokens, const T* zeros, const RowOf& row_of) : zeros(zeros) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::uint32_t token = tile * kTokensPerTile + threadIdx.x % kWarp / 4;
      of_token[tile] = row_of(token < tokens ? token : 0);
    }
  }
};

// Two ones.
template <typename T>
inline constexpr uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00u : 0x3f803f80u;

// sums += the pieces from weight `base` on times the same columns of the tokens' activations.
//
// Codes with groups come with a surplus that is the same for a whole group. It is taken from the sum:
// surplus x the sum of the activations, which is a product with ones. (To add those sums up once for
// all groups of rows of a block took longer: it is then the first thing that everything waits for.)
template <bool kWholeRounds, typename T, typename Format, int kTiles>
__device__ inline void multiply_pieces(float (&sums)[kTiles][4], const WeightPieces<Format>& w,
                                       const Activations<T, kTiles>& x, int base, int k) {
  constexpr FragmentA ones{kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int at = base + piece * WeightPieces<Format>::kSpan;
    float of_group[kTiles][4], of_ones[kTiles][4];
    const uint4* from[kTiles];
    uint4 eight[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      from[tile] =
          reinterpret_cast<const uint4*>(kWholeRounds || at < k ? x.of_token[tile] + at : x.zeros);
    Format::for_fragments(w.upper[piece], w.lower[piece], [&](int i, const FragmentA& a) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (i % 2 == 0) eight[tile] = from[tile][i / 2];
        uint32_t four[2] = {word_of(eight[tile], i % 2 * 2), word_of(eight[tile], i % 2 * 2 + 1)};
        Format::order(four);
        if constexpr (!Format::kHasGroups) {
          mma(sums[tile], a, four, T{});
        } else if (i == 0) {
          mma_first(of_group[tile], a, four, T{});
          mma_first(of_ones[tile], ones, four, T{});
        } else {
          mma(of_group[tile], a, four, T{});
          mma(of_ones[tile], ones, four, T{});
        }
      }
    });
    if constexpr (Format::kHasGroups) {
      const float scales[2] = {Format::scale(w.upper[piece]), Format::scale(w.lower[piece])};
      const float surplus[2] = {Format::surplus(w.upper[piece]), Format::surplus(w.lower[piece])};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float codes = fmaf(-surplus[i / 2], of_ones[tile][i], of_group[tile][i]);
          sums[tile][i] = fmaf(scales[i / 2], codes, sums[tile][i]);
        }
    }
  }
}

// Where the warps that share a group of rows leave their sums for each other.
template <int kWarps, int kTiles>
struct RegisterPartialSums {
  float of[kWarps][kGroupRows][kTokensPerTile * kTiles];

  // Leaves those of a lane of the `warp`-th, which become 0.
  __device__ void put(int warp, float (&sums)[kTiles][4]) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of[warp][g + i / 2 * 8][tile * kTokensPerTile + q * 2 + i % 2] = sums[tile][i];
        sums[tile][i] = 0;
      }
  }
  // Over the warps, ascending.
  __device__ float total(int row, std::uint32_t token) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += of[warp][row][token];
    return sum;
  }
};

}  // namespace sluice
