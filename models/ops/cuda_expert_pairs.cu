#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_few_rows.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_register_rows.cuh"
#include "models/ops/cuda_weight_rows.cuh"

namespace sluice {
namespace {

constexpr std::uint32_t kMostPairs = kFewRows * kMaxExpertsPerToken;

// Which of the two products of an expert: gate and up, or down.
enum class Half { gate_up, down };

template <Half kHalf>
__device__ StoredMatrix matrix_of(const ExpertPairsArgs& args, const std::byte* slab) {
  const ExpertShape& at = args.shape;
  return kHalf == Half::gate_up
             ? StoredMatrix{slab + at.gate_up, slab + at.gate_up_scales, at.hidden}
             : StoredMatrix{slab + at.down, slab + at.down_scales, at.inter};
}

// What a pair's product reads: [k].
template <Half kHalf, typename T>
__device__ const T* input_of(const ExpertPairsArgs& args, std::uint32_t pair) {
  return kHalf == Half::gate_up
             ? static_cast<const T*>(args.x) +
                   std::size_t{pair / args.per_token} * args.shape.hidden
             : static_cast<const T*>(args.inner) + std::size_t{pair} * args.shape.inter;
}

// The experts that the pairs of an operation name, each once, with its pairs: an expert's weights are
// read once for all rows that chose it. Every block makes the same list, in shared memory.
struct ExpertList {
  std::int32_t ids[kMostPairs];
  std::uint16_t pairs[kMostPairs][kFewRows];  // of the e-th expert; a row is in it once
  std::uint16_t counts[kMostPairs];
  const std::byte* slabs[kMostPairs];
  std::uint16_t experts_of_warp[kMostPairs / kWarp];
  std::uint32_t experts;

  // By all threads of a block, of which there is a whole number of warps.
  __device__ void fill(const ExpertPairsArgs& args) {
    const std::uint32_t all = args.rows * args.per_token;
    const std::uint32_t padded = divided_up(all, kWarp) * kWarp;
    for (std::uint32_t i = threadIdx.x; i < all; i += blockDim.x)
      ids[i] = args.which.contains(args.ids[i]) ? args.ids[i] : -1;
    __syncthreads();
    // Of a pair: how many before it have the same expert; the first of an expert speaks for it.
    const auto before = [&](std::uint32_t pair) {
      std::uint32_t same = 0;
      for (std::uint32_t i = 0; i < pair; ++i) same += ids[i] == ids[pair] ? 1 : 0;
      return same;
    };
    const auto is_first = [&](std::uint32_t pair) {
      return pair < all && ids[pair] >= 0 && before(pair) == 0;
    };
    for (std::uint32_t i = threadIdx.x; i < padded; i += blockDim.x) {
      const unsigned firsts = __ballot_sync(kAllLanes, is_first(i));
      if (i % kWarp == 0) experts_of_warp[i / kWarp] = static_cast<std::uint16_t>(__popc(firsts));
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < padded; i += blockDim.x) {
      const bool first = is_first(i);
      const unsigned firsts = __ballot_sync(kAllLanes, first);
      std::uint32_t expert = __popc(firsts & ((1u << i % kWarp) - 1));
      for (std::uint32_t w = 0; w < i / kWarp; ++w) expert += experts_of_warp[w];
      if (i + 1 == padded) experts = expert + (first ? 1 : 0);
      if (!first) continue;
      std::uint16_t count = 0;
      for (std::uint32_t pair = i; pair < all; ++pair)
        if (ids[pair] == ids[i]) pairs[expert][count++] = static_cast<std::uint16_t>(pair);
      counts[expert] = count;
      slabs[expert] = args.table[ids[i]];
    }
    __syncthreads();
  }
};

// Blocks take group after group of 16 rows of weights, those of one expert after those of another,
// reading ahead across both.
template <Half kHalf, typename T, typename Format, int kTiles, bool kWholeRounds, int kWarps,
          int kUnroll, int kBlocks>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocks)
    expert_pairs_kernel(const ExpertPairsArgs args) {
  using Pieces = WeightPieces<Format>;
  constexpr bool kGated = kHalf == Half::gate_up;
  constexpr int kStride = kWarps * kPieces * Pieces::kSpan;
  constexpr int kRound = round_weights<Format>(kWarps, kUnroll);
  constexpr std::uint32_t kWidth = kGated ? 8 : kGroupRows;  // outputs of a group
  __shared__ RegisterPartialSums<kWarps, kTiles> partial[2];
  __shared__ ExpertList list;
  // The experts were chosen, and their slabs placed, before the product of gate and up began: that of
  // down reads what it needs of them, and their weights, before it waits.
  const auto begin = [] {
    wait_for_previous();
    let_next_begin();
  };
  if constexpr (kGated) begin();
  list.fill(args);

  const std::uint32_t n = kGated ? 2 * args.shape.inter : args.shape.hidden;
  const std::uint32_t width = kGated ? args.shape.inter : args.shape.hidden;
  const auto k = static_cast<int>(kGated ? args.shape.hidden : args.shape.inter);
  const std::uint32_t groups = divided_up(width, kWidth), items = list.experts * groups;
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  const int first = threadIdx.x / kWarp * kPieces * Pieces::kSpan + q * Format::kPieceWeights;
  const int rounds = (k + kRound - 1) / kRound;

  const auto rows_of = [&](std::uint32_t item) {
    const StoredMatrix m = matrix_of<kHalf>(args, list.slabs[item / groups]);
    return GroupRows<Format>(m, n, kGated, item % groups, g, first);
  };
  if (blockIdx.x >= items) {
    if constexpr (!kGated) begin();
    return;
  }
  GroupRows<Format> rows = rows_of(blockIdx.x);
  Pieces ahead[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i)
    ahead[i].template load<kWholeRounds>(rows, i * kStride, first, k);
  if constexpr (!kGated) begin();

  float sums[kTiles][4] = {};
  int side = 0;
  for (std::uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::uint32_t expert = item / groups, group = item % groups;
    const std::uint32_t tokens = list.counts[expert];
    Activations<T, kTiles> x(
        tokens, reinterpret_cast<const T*>(kZeroPiece),
        [&](std::uint32_t token) { return input_of<kHalf, T>(args, list.pairs[expert][token]); });
    for (int round = 0; round < rounds; ++round) {
      const int base = first + round * kRound;
      const bool same_group = round + 1 < rounds;
      const bool more = same_group || item + gridDim.x < items;
      const int next = same_group ? base + kRound : first;
      if (same_group)
        rows.move_on(kRound);
      else if (more)
        rows = rows_of(item + gridDim.x);
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        multiply_pieces<kWholeRounds>(sums, ahead[i], x, base + i * kStride, k);
        if (more) ahead[i].template load<kWholeRounds>(rows, i * kStride, next, k);
      }
    }
    // The other side may still be read by those who finish the group before.
    partial[side].put(threadIdx.x / kWarp, sums);
    __syncthreads();
    const StoredMatrix m = matrix_of<kHalf>(args, list.slabs[expert]);
    for (std::uint32_t i = threadIdx.x; i < kWidth * tokens; i += kWarps * kWarp) {
      const std::uint32_t mine = i % kWidth, token = i / kWidth, row = group * kWidth + mine;
      if (row >= width) continue;
      const auto y = [&](std::uint32_t at, std::uint32_t of_group) {
        return rounded<T>(Format::scaled(m, at, partial[side].total(of_group, token)));
      };
      const std::size_t pair = list.pairs[expert][token];
      if constexpr (kGated)
        static_cast<T*>(args.inner)[pair * width + row] =
            from_float<T>(rounded<T>(silu(y(row, mine))) * y(width + row, mine + 8));
      else
        static_cast<T*>(args.out)[pair * width + row] = from_float<T>(y(row, mine));
    }
    side ^= 1;
  }
}

constexpr int kAnyWarps = 8;

// A warp per output of a pair, for what the tensor cores' kernels do not take.
template <Half kHalf, typename T, typename Row>
__global__ void __launch_bounds__(kAnyWarps* kWarp) any_pairs_kernel(const ExpertPairsArgs args) {
  wait_for_previous();
  const std::uint32_t pair = blockIdx.y, lane = threadIdx.x % kWarp;
  const std::uint32_t row = blockIdx.x * kAnyWarps + threadIdx.x / kWarp;
  const std::uint32_t width = kHalf == Half::gate_up ? args.shape.inter : args.shape.hidden;
  const std::int32_t id = args.ids[pair];
  if (row >= width || !args.which.contains(id)) return;
  const StoredMatrix m = matrix_of<kHalf>(args, args.table[id]);
  const T* x = input_of<kHalf, T>(args, pair);
  const auto y = [&](std::uint32_t n) {
    const Row weights(m, n);
    float sum = 0;
    for (std::uint32_t i = lane; i < m.k; i += kWarp)
      sum = fmaf(to_float(x[i]), weights.at(i), sum);
    return rounded<T>(warp_sum(sum));
  };
  const std::size_t at = std::size_t{pair} * width + row;
  if constexpr (kHalf == Half::gate_up) {
    const float gate = y(row), up = y(width + row);
    if (lane == 0) static_cast<T*>(args.inner)[at] = from_float<T>(rounded<T>(silu(gate)) * up);
  } else {
    const float down = y(row);
    if (lane == 0) static_cast<T*>(args.out)[at] = from_float<T>(down);
  }
}

template <Half kHalf, typename T, typename Format, int kTiles>
void launch_pairs(const ExpertPairsArgs& args, const CudaLaunch& on) {
  constexpr bool kGated = kHalf == Half::gate_up;
  constexpr bool kNative = std::is_same_v<Format, NativeWeights<T>>;
  constexpr int kWarps = kGated ? 8 : 4, kUnroll = kGated || !kNative ? 2 : 3;
  constexpr int kBlocks = kGated ? (kNative ? 3 : 2) : (kNative ? 5 : 4);
  const std::uint32_t k = kGated ? args.shape.hidden : args.shape.inter;
  const std::uint32_t groups =
      kGated ? divided_up(args.shape.inter, 8) : divided_up(args.shape.hidden, kGroupRows);
  const auto with = [&](auto kernel) {
    launch(kernel, std::min(args.rows * args.per_token * groups, kBlocks * on.processors),
           kWarps * kWarp, 0, on.stream, on.overlap, args);
  };
  if (k % round_weights<Format>(kWarps, kUnroll) == 0)
    with(expert_pairs_kernel<kHalf, T, Format, kTiles, true, kWarps, kUnroll, kBlocks>);
  else
    with(expert_pairs_kernel<kHalf, T, Format, kTiles, false, kWarps, kUnroll, kBlocks>);
}

template <typename T, typename Format>
void launch_pairs(const ExpertPairsArgs& args, const CudaLaunch& on) {
  if (args.rows <= kTokensPerTile) {
    launch_pairs<Half::gate_up, T, Format, 1>(args, on);
    launch_pairs<Half::down, T, Format, 1>(args, on);
  } else {
    launch_pairs<Half::gate_up, T, Format, 2>(args, on);
    launch_pairs<Half::down, T, Format, 2>(args, on);
  }
}

template <typename T>
void launch_any_pairs(const ExpertPairsArgs& args, const CudaLaunch& on) {
  with_weight_row(args.shape.encoding, args.shape.weight_type, [&]<typename Row>(OfRow<Row>) {
    const auto half = [&](auto kernel, std::uint32_t width) {
      launch(kernel, dim3(divided_up(width, kAnyWarps), args.rows * args.per_token),
             kAnyWarps * kWarp, 0, on.stream, on.overlap, args);
    };
    half(any_pairs_kernel<Half::gate_up, T, Row>, args.shape.inter);
    half(any_pairs_kernel<Half::down, T, Row>, args.shape.hidden);
  });
}

}  // namespace

void cuda_expert_pairs(const ExpertPairsArgs& args, const CudaLaunch& on) {
  const ExpertShape& shape = args.shape;
  const bool tensor_cores =
      cuda_on_tensor_cores(args.type, shape.weight_type, shape.encoding, args.rows, shape.hidden) &&
      cuda_on_tensor_cores(args.type, shape.weight_type, shape.encoding, args.rows, shape.inter);
  with_type(args.type, [&](auto t) {
    using T = decltype(t);
    if (!tensor_cores) return launch_any_pairs<T>(args, on);
    if constexpr (!std::is_same_v<T, float>) {
      switch (shape.encoding) {
        case Encoding::native: return launch_pairs<T, NativeWeights<T>>(args, on);
        case Encoding::int8: return launch_pairs<T, Int8Weights<T>>(args, on);
        case Encoding::int4: return launch_pairs<T, Int4Weights<T>>(args, on);
      }
    }
  });
}

}  // namespace sluice
