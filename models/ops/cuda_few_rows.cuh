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
    Format::prepare(eight);
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

  __device__ static Eight<T> prepared(Eight<T> values) {
    Format::prepare(*reinterpret_cast<uint4*>(&values));
    return values;
  }

  __device__ StagedRows(const T* staged, std::uint32_t tokens, std::uint32_t k) {
    const std::uint32_t token = threadIdx.x % kWarp / 4;
    has_token_ = token < tokens;
    first_ = static_cast<uint32_t>(
        __cvta_generic_to_shared(staged + Step::first_of_warp() + threadIdx.x % 4 * 8));
    row_bytes_ = width(k) * sizeof(T);
    from_ = first_ + (has_token_ ? token : 0) * row_bytes_;
  }
  // A lane without a token leaves `eight` alone, and makes sums that are nobody's. A predicate in
  // place of a branch: mma is for all lanes.
  __device__ void load(uint4& eight, int, int weight, int i) const {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
                 : "+r"(eight.x), "+r"(eight.y), "+r"(eight.z), "+r"(eight.w)
                 : "r"(from_ + (weight + i * 32) * int(sizeof(T))), "r"(uint32_t{has_token_}));
  }
  // What of a token stands beside one fragment of a piece: beside another one in each four lanes.
  __device__ void load_of_fragments(uint32_t (&four)[2], std::uint32_t token, int weight) const {
    const int fragment = threadIdx.x % kWarp / 4;
    const int at = weight + fragment / 2 * 32 + fragment % 2 * 4;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(four[0]), "=r"(four[1])
                 : "r"(first_ + token * row_bytes_ + at * int(sizeof(T))));
  }

 private:
  uint32_t first_, row_bytes_, from_;
  bool has_token_;
};

// The sums of each token's activations over groups of weights, for codes with zero points: zero point x
// that sum has to be taken from a product's sum. A warp keeps those of its own columns.
//
// A sum is made of those of what stands beside each fragment, which are products with ones; neighbours are
// added first. Of staged rows one instruction makes those of all eight fragments, before the first group of
// rows is multiplied; where rows are they come with that, eight tokens at a time.
template <typename T, typename Format, typename Step, int kTiles>
class GroupSums {
 public:
  __host__ __device__ static std::size_t bytes(std::uint32_t k) {
    return Step::count(k) * Step::kWarps * Step::kPieces * kTiles * kTokensPerTile * sizeof(float);
  }

  // In shared memory: [group][kTiles][kTokensPerTile].
  __device__ explicit GroupSums(float* of) : of_(of) {}

  __device__ void make(const StagedRows<T, Format, Step>& x, std::uint32_t tokens,
                       std::uint32_t k) {
    static_assert(kTiles == 1);
    constexpr int kSteps = 2;  // at once, since each instruction waits for the one before
    const int last = int(Step::count(k) - 1) * Step::kWeights;
    for (int first = 0; first <= last; first += kSteps * Step::kWeights)
      for (std::uint32_t token = 0; token < tokens; ++token) {
        float sums[kSteps][Step::kPieces];
        const auto each = [&](auto f) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step)
#pragma unroll
            for (int p = 0; p < Step::kPieces; ++p)
              f(sums[step][p], min(first + step * Step::kWeights, last), p);
        };
        each([&](float& sum, int weight, int p) {
          uint32_t four[2];
          x.load_of_fragments(four, token, weight + p * Step::kSpan);
          float of_two[4];
          add_up(of_two, four);
          sum = of_two[0] + of_two[1];
        });
        each([](float& sum, int, int) { sum += __shfl_xor_sync(kAllLanes, sum, 1); });
        each([](float& sum, int, int) { sum += __shfl_xor_sync(kAllLanes, sum, 2); });
        if (threadIdx.x % kWarp == 0)
          each([&](float sum, int weight, int p) { of_group(weight, p, 0)[token] = sum; });
      }
    __syncwarp();
  }
  // Puts the sums of what stands beside the i-th fragment to those before; of all eight they are the first.
  __device__ static void add_fragment(float2 (&sums)[8], int i, const uint32_t (&four)[2]) {
    float of_two[4];
    add_up(of_two, four);
    sums[i] = make_float2(of_two[0], of_two[1]);
#pragma unroll
    for (int width = 1; width < 8 && (i + 1) % (2 * width) == 0; width *= 2) {
      sums[i + 1 - 2 * width].x += sums[i + 1 - width].x;
      sums[i + 1 - 2 * width].y += sums[i + 1 - width].y;
    }
  }
  __device__ void keep(int weight, int p, int tile, float2 sums) {
    if (threadIdx.x % kWarp < 4) of_lane(weight, p, tile) = sums;
  }
  // Of the two tokens whose sums a lane has; of the group of a step's piece p. After a __syncwarp().
  __device__ float2 kept(int weight, int p, int tile) const { return of_lane(weight, p, tile); }

 private:
  // The sums of what stands beside a fragment.
  __device__ static void add_up(float (&sums)[4], const uint32_t (&four)[2]) {
    constexpr FragmentA ones{Format::kLowerOnes, Format::kLowerOnes, Format::kUpperOnes,
                             Format::kUpperOnes};
    mma_first(sums, ones, four, T{});
  }
  __device__ float* of_group(int weight, int p, int tile) const {
    const std::uint32_t group = std::uint32_t(weight) / std::uint32_t(kGroupWeights) +
                                threadIdx.x / kWarp * Step::kPieces + p;
    return of_ + (group * kTiles + tile) * kTokensPerTile;
  }
  __device__ float2& of_lane(int weight, int p, int tile) const {
    return reinterpret_cast<float2*>(of_group(weight, p, tile))[threadIdx.x % 4];
  }
  float* of_;
};

// sums += a step's pieces times the same columns of the tokens' activations; the step begins at
// `weight`. `group_sums` are made where kFirst, and taken from there otherwise. `eights` are where
// activations come to, and zeros where none do. With kOneToken alone the first token's sums matter.
template <bool kFirst, bool kOneToken, typename T, typename Format, typename Step, int kTiles,
          typename X, typename Sums>
__device__ inline void multiply_step(float (&sums)[kTiles][4], const StepPieces<Format, Step>& step,
                                     const X& x, int weight, Sums& group_sums,
                                     uint4 (&eights)[Step::kPieces][kTiles]) {
#pragma unroll
  for (int p = 0; p < Step::kPieces; ++p) {
    const auto &upper = step.upper[p], &lower = step.lower[p];
    float of_group[kTiles][4];
    float2 of_fragments[kTiles][8];
    Format::for_fragments(upper, lower, [&](int i, const FragmentA& a) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint4& eight = eights[p][tile];
        if (i % 2 == 0) x.load(eight, tile, weight + p * Step::kSpan, i / 2);
        uint32_t four[2] = {word_of(eight, i % 2 * 2), word_of(eight, i % 2 * 2 + 1)};
        Format::order(four);
        if constexpr (!Format::kHasGroups)
          mma(sums[tile], a, four, T{});
        else if (i == 0)
          mma_first(of_group[tile], a, four, T{});
        else
          mma(of_group[tile], a, four, T{});
        if constexpr (kFirst) group_sums.add_fragment(of_fragments[tile], i, four);
      }
    });
    if constexpr (Format::kHasGroups) {
      const float scales[2] = {Format::scale(upper), Format::scale(lower)};
      const float zeros[2] = {Format::zero(upper), Format::zero(lower)};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if constexpr (kFirst) group_sums.keep(weight, p, tile, of_fragments[tile][0]);
        const float2 group_sum = kFirst ? of_fragments[tile][0] : group_sums.kept(weight, p, tile);
#pragma unroll
        for (int i = 0; i < 4; i += kOneToken ? 2 : 1) {
          const float codes =
              fmaf(-zeros[i / 2], i % 2 == 0 ? group_sum.x : group_sum.y, of_group[tile][i]);
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
