// The heart of the matrix-vector kernels: a group of 16 rows of weights times a few rows of
// activations on tensor cores. Tokens are padded to tiles of 8, so a token's result is the same alone
// and among others.
//
// The order of k is permuted alike on both sides of the product, so that each thread reads 16
// contiguous bytes of a row: lane q of four has piece q, whose weights serve as the fragments of
// several instructions, four to each.
#pragma once
#include <type_traits>

#include "models/ops/cuda_mma.cuh"
#include "models/ops/cuda_weight_fifo.cuh"
#include "models/ops/cuda_weight_formats.cuh"

namespace sluice {

inline constexpr int kTokensPerTile = 8;  // the n of the mma instruction

// Row `i` of a group of 16 of a matrix of n rows; row 0 in place of one that it does not have. For a
// gated product a group is 8 rows of the gate, the upper half of the matrix, and the 8 of up that
// belong to them.
__device__ inline std::uint32_t row_of_group(std::uint32_t n, bool gated, std::uint32_t group,
                                             std::uint32_t i) {
  if (!gated) {
    const std::uint32_t row = group * kGroupRows + i;
    return row < n ? row : 0;
  }
  const std::uint32_t row = group * 8 + i % 8;
  return row < n / 2 ? row + i / 8 * (n / 2) : 0;
}

// What a lane reads of a group: fragment rows g and g + 8.
template <typename Step, typename Format>
__device__ inline LaneRows rows_of_group(const StoredMatrix& m, std::uint32_t n, bool gated,
                                         std::uint32_t group) {
  const std::uint32_t g = threadIdx.x % kWarp / 4;
  return lane_rows<Step, Format>(m, row_of_group(n, gated, group, g),
                                 row_of_group(n, gated, group, g + 8));
}

using FragmentB = uint32_t[2];

// Two ones.
template <typename T>
inline constexpr uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00u : 0x3f803f80u;

// For columns behind the end of a row.
static __device__ const uint4 kZeroPiece[4] = {};

// Activations as a lane multiplies with them: of its token in each tile of 8, eight at a time, those
// that stand beside the i-th eight of its piece that begins `weight` weights behind its first.

// Where they are.
template <typename T, typename Format, typename Step, int kTiles, bool kWholeSteps>
class RowsInPlace {
 public:
  // row_of(token): its activations, of `tokens`. A lane without a token has the first one's, and makes
  // sums that are nobody's.
  template <typename RowOf>
  __device__ RowsInPlace(std::uint32_t tokens, std::uint32_t k, const RowOf& row_of)
      : first_(Step::first_of_warp() + threadIdx.x % 4 * Format::kPieceWeights),
        k_(static_cast<int>(k)) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::uint32_t token = tile * kTokensPerTile + threadIdx.x % kWarp / 4;
      of_token_[tile] = row_of(token < tokens ? token : 0);
    }
  }
  __device__ void load(uint4& eight, int tile, int weight, int i) const {
    const int at = weight + first_;
    const void* const from =
        kWholeSteps || at < k_ ? static_cast<const void*>(of_token_[tile] + at) : kZeroPiece;
    eight = static_cast<const uint4*>(from)[i];
  }

 private:
  const T* of_token_[kTiles];
  int first_, k_;
};

// In shared memory, zeros behind the end of a row up to the end of a step. Lanes read there without
// meeting in a bank: the eights of four lanes' pieces lie i by i.
template <typename T, typename Format, typename Step>
class StagedRows {
 public:
  // What a row is longer than its steps, so that the rows of a tile lie in different banks.
  static constexpr std::uint32_t kRowGap = 32;

  __host__ __device__ static std::uint32_t columns(std::uint32_t k) {
    return Step::count(k) * Step::kWeights;
  }
  __host__ __device__ static std::uint32_t width(std::uint32_t k) { return columns(k) + kRowGap; }
  // Where the eight columns from `column` on are in a row.
  __device__ static std::uint32_t place(std::uint32_t column) {
    constexpr std::uint32_t kEights = Format::kPieceWeights / 8;
    const std::uint32_t eight = column % Step::kSpan / 8;
    return column / Step::kSpan * Step::kSpan + (eight % kEights * 4 + eight / kEights) * 8;
  }

  __device__ StagedRows(const T* staged, std::uint32_t tokens, std::uint32_t k) {
    const std::uint32_t token = threadIdx.x % kWarp / 4;
    has_token_ = token < tokens;
    const std::uint32_t at =
        (has_token_ ? token : 0) * width(k) + Step::first_of_warp() + threadIdx.x % 4 * 8;
    from_ = static_cast<uint32_t>(__cvta_generic_to_shared(staged + at));
  }
  // A lane without a token leaves `eight` alone, and makes sums that are nobody's. A predicate in
  // place of a branch: mma is for all lanes.
  __device__ void load(uint4& eight, int, int weight, int i) const {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
                 : "+r"(eight.x), "+r"(eight.y), "+r"(eight.z), "+r"(eight.w)
                 : "r"(from_ + (weight + i * 32) * int(sizeof(T))), "r"(uint32_t{has_token_}));
  }

 private:
  uint32_t from_;
  bool has_token_;
};

// The sums of each token's activations over groups of weights, for codes that come with a surplus that
// is the same for a whole group: surplus x that sum has to be taken from a product's sum. A warp keeps
// those of its own columns, which come with the first group of rows that it multiplies. (To make them
// before took longer: it is then what everything waits for.)
template <typename Format, typename Step, int kTiles>
class GroupSums {
 public:
  __host__ __device__ static std::size_t bytes(std::uint32_t k) {
    return Step::count(k) * Step::kWarps * Step::kPieces * kTiles * kTokensPerTile * sizeof(float);
  }

  // In shared memory: [group][kTiles][kTokensPerTile].
  __device__ explicit GroupSums(float* of) : of_(of) {}

  // Of the two tokens whose sums a lane has; of the group that a step's piece at `weight` is in.
  __device__ void keep(int tile, int weight, float2 sums) {
    if (threadIdx.x % kWarp < 4) *at(tile, weight) = sums;
  }
  // After a __syncwarp().
  __device__ float2 kept(int tile, int weight) const { return *at(tile, weight); }

 private:
  __device__ float2* at(int tile, int weight) const {
    const std::uint32_t group =
        std::uint32_t(weight + Step::first_of_warp()) / std::uint32_t(kGroupWeights);
    return reinterpret_cast<float2*>(of_ + (group * kTiles + tile) * kTokensPerTile) +
           threadIdx.x % 4;
  }
  float* of_;
};

// sums += a step's pieces times the same columns of the tokens' activations; the step begins at
// `weight`. `group_sums` are made and kept where kFirst, and taken from there otherwise.
template <bool kFirst, typename T, typename Format, typename Step, int kTiles, typename X>
__device__ inline void multiply_step(float (&sums)[kTiles][4], const StepPieces<Format, Step>& step,
                                     const X& x, int weight,
                                     GroupSums<Format, Step, kTiles>& group_sums) {
  constexpr FragmentA ones{kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
#pragma unroll
  for (int p = 0; p < Step::kPieces; ++p) {
    const auto &upper = step.upper[p], &lower = step.lower[p];
    const int at = weight + p * Step::kSpan;
    float of_group[kTiles][4], of_ones[kTiles][4];
    uint4 eight[kTiles] = {};
    Format::for_fragments(upper, lower, [&](int i, const FragmentA& a) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (i % 2 == 0) x.load(eight[tile], tile, at, i / 2);
        uint32_t four[2] = {word_of(eight[tile], i % 2 * 2), word_of(eight[tile], i % 2 * 2 + 1)};
        Format::order(four);
        if constexpr (!Format::kHasGroups) {
          mma(sums[tile], a, four, T{});
        } else if (i == 0) {
          mma_first(of_group[tile], a, four, T{});
          if constexpr (kFirst) mma_first(of_ones[tile], ones, four, T{});
        } else {
          mma(of_group[tile], a, four, T{});
          if constexpr (kFirst) mma(of_ones[tile], ones, four, T{});
        }
      }
    });
    if constexpr (Format::kHasGroups) {
      const float scales[2] = {Format::scale(upper), Format::scale(lower)};
      const float surplus[2] = {Format::surplus(upper), Format::surplus(lower)};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float2 group_sum;
        if constexpr (kFirst) {
          group_sum = make_float2(of_ones[tile][0], of_ones[tile][1]);
          group_sums.keep(tile, at, group_sum);
        } else {
          group_sum = group_sums.kept(tile, at);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float codes =
              fmaf(-surplus[i / 2], i % 2 == 0 ? group_sum.x : group_sum.y, of_group[tile][i]);
          sums[tile][i] = fmaf(scales[i / 2], codes, sums[tile][i]);
        }
      }
    }
  }
}

// Where the warps that share a group of rows leave their sums for each other, by turns on two sides: one
// may still be read when the next group's come.
template <int kWarps, int kTiles>
class PartialSums {
 public:
  __host__ __device__ static std::size_t bytes(std::uint32_t tokens) {
    return 2 * kWarps * kGroupRows * tokens * sizeof(float);
  }

  // In shared memory: [2][kWarps][kGroupRows][tokens].
  __device__ PartialSums(float* of, std::uint32_t tokens)
      : side_(of), other_(of + kWarps * kGroupRows * tokens), tokens_(tokens) {}

  // Leaves a lane's, which become 0, on the other side than the last time.
  __device__ void put(float (&sums)[kTiles][4]) {
    float* const now = other_;
    other_ = side_;
    side_ = now;
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    float* const mine = side_ + (warp * kGroupRows + lane / 4) * tokens_;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t token = tile * kTokensPerTile + lane % 4 * 2 + i % 2;
        if (token < tokens_) mine[i / 2 * 8 * tokens_ + token] = sums[tile][i];
        sums[tile][i] = 0;
      }
  }
  // Over the warps, ascending.
  __device__ float total(std::uint32_t row, std::uint32_t token) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      sum += side_[(warp * kGroupRows + row) * tokens_ + token];
    return sum;
  }

 private:
  float *side_, *other_;
  std::uint32_t tokens_;
};

}  // namespace sluice
