#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_few_rows.cuh"
#include "models/ops/cuda_finish.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_norm.cuh"

namespace sluice {
namespace {

// Rows of activations that a block brings into shared memory, and normalises, at most: with more,
// measured on an H200, it is done later than if it reads them where they are.
constexpr std::uint32_t kStagedRows = 2;
// What a row of activations in shared memory is longer than k, so that the rows of a tile lie in
// different banks: zeros, for pieces of weights behind the end of a row.
constexpr std::uint32_t kRowGap = 32;

// A product and what is done to its rows before and after.
struct FewRowsArgs {
  LinearArgs linear;                       // x is not yet normalised where there is a norm
  const std::byte* norm_weight = nullptr;  // [k] of norm_type, or null
  DType norm_type = DType::bf16;
  float eps = 0;
  void* normed_out = nullptr;  // [rows, k]: the normalised rows, where somebody else reads them
  void* gated_out = nullptr;   // [rows, n / 2]: SiLU of the first half times the second; or null
  std::uint32_t groups = 0;    // of 16 rows of weights
};

// Shared memory of a block that stages its activations; every architecture in use has as much.
constexpr std::size_t kMostStaged = 96 << 10;

__host__ __device__ std::size_t staged_bytes(const LinearArgs& args, bool norm) {
  return std::size_t{args.rows} * (args.k + kRowGap) * size_of(args.type) +
         (norm ? args.k * sizeof(float) : 0);
}

// Brings the activations into shared memory, [rows][k + kRowGap], normalised where asked for, with
// `norm`, [k] of shared memory. A thread works on the same columns throughout.
template <typename T, int kThreads>
__device__ void stage_rows(const FewRowsArgs& args, T* staged, const float* norm) {
  const std::uint32_t k = args.linear.k, rows = args.linear.rows, width = k + kRowGap;
  const std::uint32_t first = threadIdx.x * 8, stride = (norm ? kNormThreads : kThreads) * 8;
  const bool works = !norm || threadIdx.x < kNormThreads;
  const T* x = static_cast<const T*>(args.linear.x);
  __shared__ float warp_sums[kStagedRows][kNormWarps];
  if (threadIdx.x < rows * kRowGap)
    staged[threadIdx.x / kRowGap * width + k + threadIdx.x % kRowGap] = from_float<T>(0.0f);
  if (works) {
    for (std::uint32_t row = 0; row < rows; ++row)
#pragma unroll 4
      for (std::uint32_t i = first; i < k; i += stride)
        *reinterpret_cast<uint4*>(staged + row * width + i) =
            *reinterpret_cast<const uint4*>(x + std::size_t{row} * k + i);
    for (std::uint32_t row = 0; norm && row < rows; ++row) {
      const float squares = warp_sum(squares_of(staged + row * width, k));
      if (threadIdx.x % kWarp == 0) warp_sums[row][threadIdx.x / kWarp] = squares;
    }
  }
  __syncthreads();
  if (!norm) return;
  for (std::uint32_t row = 0; works && row < rows; ++row) {
    const float scale = inverse_rms(warp_sums[row], k, args.eps);
    for (std::uint32_t i = first; i < k; i += stride) {
      auto& values = *reinterpret_cast<Eight<T>*>(staged + row * width + i);
      const float4 low = *reinterpret_cast<const float4*>(norm + i);
      const float4 high = *reinterpret_cast<const float4*>(norm + i + 4);
      const float weights[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) values.v[e] = normalised(values.v[e], scale, weights[e]);
    }
  }
  __syncthreads();
  if (!args.normed_out || blockIdx.x != 0) return;
  for (std::uint32_t row = 0; works && row < rows; ++row)
    for (std::uint32_t i = first; i < k; i += stride)
      *reinterpret_cast<uint4*>(static_cast<T*>(args.normed_out) + std::size_t{row} * k + i) =
          *reinterpret_cast<const uint4*>(staged + row * width + i);
}

// How a matrix is shared out: kWarps share the columns of a group of 16 rows of weights, each lane with
// kUnroll times its pieces under way, in kBlocks blocks on a multiprocessor.
template <int kWarpsOfBlock, int kUnrolled, int kBlocksOfProcessor>
struct Shares {
  static constexpr int kWarps = kWarpsOfBlock, kUnroll = kUnrolled, kBlocks = kBlocksOfProcessor;
  static constexpr int kThreads = kWarps * kWarp;
};

// Blocks stay and take group after group of 16 rows of weights, reading ahead across groups and, at
// the start, while the kernel before still runs. The warps' shares of k are summed in ascending order.
template <typename T, typename Format, typename S, int kTiles, bool kStaged, bool kWholeRounds>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) few_rows_kernel(const FewRowsArgs args) {
  using Pieces = WeightPieces<Format>;
  constexpr int kThreads = S::kThreads, kUnroll = S::kUnroll;
  constexpr int kStride = S::kWarps * kPieces * Pieces::kSpan;
  constexpr int kRound = round_weights<Format>(S::kWarps, kUnroll);
  static_assert(kThreads >= kNormThreads && kThreads >= kGroupRows * int(kFewRows));
  __shared__ PartialSums<S::kWarps, kTiles> partial[2];
  extern __shared__ __align__(16) unsigned char shared[];
  const LinearArgs& linear = args.linear;
  const StoredMatrix matrix{linear.weight, linear.scales, linear.k};
  const bool gated = args.gated_out != nullptr;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int g = lane / 4, q = lane % 4;
  const auto k = static_cast<int>(linear.k);
  const int rounds = (k + kRound - 1) / kRound;
  const int first = warp * kPieces * Pieces::kSpan + q * Format::kPieceWeights;

  Pieces ahead[kUnroll];
  GroupRows<Format> rows(matrix, linear.n, gated, blockIdx.x, g, first);
#pragma unroll
  for (int i = 0; i < kUnroll; ++i)
    ahead[i].template load<kWholeRounds>(rows, i * kStride, first, k);

  // What follows a product with a residual reads nothing but weights before it waits.
  if (linear.residual) let_next_begin();
  T* const staged = reinterpret_cast<T*>(shared);
  if constexpr (kStaged) {
    float* norm = nullptr;
    if (args.norm_weight) {
      norm = reinterpret_cast<float*>(staged + linear.rows * (linear.k + kRowGap));
      for (std::uint32_t i = threadIdx.x * 8; i < linear.k; i += kThreads * 8)
        load_eight(args.norm_weight, args.norm_type, i, linear.k,
                   reinterpret_cast<float(&)[8]>(norm[i]));
    }
    wait_for_previous();
    if (!linear.residual) let_next_begin();
    stage_rows<T, kThreads>(args, staged, norm);
  } else {
    wait_for_previous();
    if (!linear.residual) let_next_begin();
  }
  Activations<T, kTiles> x(
      linear.rows, kStaged ? staged + linear.k : reinterpret_cast<const T*>(kZeroPiece),
      [&](std::uint32_t token) {
        return kStaged ? staged + token * (linear.k + kRowGap)
                       : static_cast<const T*>(linear.x) + std::size_t{token} * linear.k;
      });

  // A thread finishes one of a group's outputs: n of `token`, or the gate and up of it.
  const int group_width = gated ? 8 : kGroupRows;
  const int mine = threadIdx.x % group_width;
  const std::uint32_t token = threadIdx.x / group_width;
  const std::uint32_t width = gated ? linear.n / 2 : linear.n;
  float sums[kTiles][4] = {};
  int side = 0;
  for (std::uint32_t group = blockIdx.x; group < args.groups; group += gridDim.x) {
    const std::uint32_t n = group * group_width + mine;
    const std::size_t out_at = std::size_t{token} * width + n;
    const bool finishes = token < linear.rows && n < width;
    const float before = finishes ? residual_at<T>(linear, out_at) : 0.0f;
    for (int round = 0; round < rounds; ++round) {
      const int base = first + round * kRound;
      const bool same_group = round + 1 < rounds;
      const bool more = same_group || group + gridDim.x < args.groups;
      const int next = same_group ? base + kRound : first;
      if (same_group)
        rows.move_on(kRound);
      else
        rows = {matrix, linear.n, gated, group + gridDim.x, g, first};
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        multiply_pieces<kWholeRounds>(sums, ahead[i], x, base + i * kStride, k);
        if (more) ahead[i].template load<kWholeRounds>(rows, i * kStride, next, k);
      }
    }
    // The other side may still be read by those who finish the group before.
    partial[side].put(warp, sums);
    __syncthreads();
    const auto sum_of = [&](int row) { return partial[side].total(row, token); };
    if (finishes && gated) {
      const auto y = [&](std::uint32_t row, int of_group) {
        return rounded<T>(with_bias(linear, row, Format::scaled(matrix, row, sum_of(of_group))));
      };
      const float gate = y(n, mine), up = y(width + n, mine + 8);
      static_cast<T*>(args.gated_out)[out_at] = from_float<T>(rounded<T>(silu(gate)) * up);
    } else if (finishes) {
      finish<T>(linear, out_at, n, Format::scaled(matrix, n, sum_of(mine)), before);
    }
    side ^= 1;
  }
}

bool on_tensor_cores(const LinearArgs& args) {
  return cuda_on_tensor_cores(args.type, args.weight_type, args.encoding, args.rows, args.k);
}

bool can_stage(const LinearArgs& args, bool norm) {
  return args.rows <= kStagedRows && staged_bytes(args, norm) <= kMostStaged;
}

template <typename T, typename Format, typename S, int kTiles, bool kStaged, bool kWholeRounds>
void launch_rounds(const FewRowsArgs& args, const CudaLaunch& on) {
  const auto kernel = few_rows_kernel<T, Format, S, kTiles, kStaged, kWholeRounds>;
  if constexpr (kStaged) {
    static const cudaError_t allowed = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostStaged));
    SLUICE_CUDA_CHECK(allowed);
  }
  const std::size_t shared = kStaged ? staged_bytes(args.linear, args.norm_weight) : 0;
  launch(kernel, std::min<std::uint32_t>(args.groups, S::kBlocks * on.processors), S::kThreads,
         shared, on.stream, on.overlap, args);
}

template <typename Format, typename S>
bool in_whole_rounds(const LinearArgs& args, S) {
  return args.k % round_weights<Format>(S::kWarps, S::kUnroll) == 0;
}

// Groups for each multiprocessor from which on blocks of 8 warps serve best for weights as they are
// stored: a head's.
constexpr std::uint32_t kManyGroups = 32;

// Measured on an H200: 96 to 128 KiB of weights under way on a multiprocessor. Codes take more registers
// to be worked on, so that fewer are under way, however the matrix is shaped: fewer rows to a warp, more
// blocks, room for blocks of the next kernel were all slower. The number of warps changes the order of
// sums, so it depends on the matrix alone.
template <typename T, typename Format, int kTiles, bool kStaged>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  // The first that makes whole rounds of a row of weights, or the last.
  const auto first_of = [&](auto large, auto small) {
    if (in_whole_rounds<Format>(args.linear, large))
      launch_rounds<T, Format, decltype(large), kTiles, kStaged, true>(args, on);
    else if (in_whole_rounds<Format>(args.linear, small))
      launch_rounds<T, Format, decltype(small), kTiles, kStaged, true>(args, on);
    else
      launch_rounds<T, Format, decltype(small), kTiles, kStaged, false>(args, on);
  };
  if constexpr (!std::is_same_v<Format, NativeWeights<T>>)
    first_of(Shares<8, 2, 2>(), Shares<8, 1, 2>());
  else if (args.groups > kManyGroups * on.processors)
    first_of(Shares<8, 2, 3>(), Shares<8, 1, 3>());
  else
    first_of(Shares<16, (kTiles == 1 ? 4 : 3), 1>(), Shares<16, 2, 1>());
}

template <typename T, typename Format>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  if (can_stage(args.linear, args.norm_weight))
    launch_few_rows<T, Format, 1, true>(args, on);
  else if (args.linear.rows <= kTokensPerTile)
    launch_few_rows<T, Format, 1, false>(args, on);
  else
    launch_few_rows<T, Format, 2, false>(args, on);
}

void launch_few_rows(FewRowsArgs args, const CudaLaunch& on) {
  args.groups = args.gated_out ? divided_up(args.linear.n / 2, kGroupRows / 2)
                               : divided_up(args.linear.n, kGroupRows);
  with_type(args.linear.type, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, float>) {
      switch (args.linear.encoding) {
        case Encoding::native: return launch_few_rows<T, NativeWeights<T>>(args, on);
        case Encoding::int8: return launch_few_rows<T, Int8Weights<T>>(args, on);
        case Encoding::int4: return launch_few_rows<T, Int4Weights<T>>(args, on);
      }
    }
  });
}

FewRowsArgs with_norm(const RmsNormArgs& norm, const LinearArgs& linear) {
  FewRowsArgs args{
      .linear = linear, .norm_weight = norm.weight, .norm_type = norm.weight_type, .eps = norm.eps};
  args.linear.x = norm.x;
  return args;
}

}  // namespace

void cuda_linear_few(const LinearArgs& args, const CudaLaunch& on) {
  if (on_tensor_cores(args)) return launch_few_rows({.linear = args}, on);
  cuda_linear_any(args, on);
}

bool cuda_can_norm_linear(const LinearArgs& args) {
  return on_tensor_cores(args) && can_stage(args, true);
}

void cuda_norm_linear(const NormLinearArgs& args, const CudaLaunch& on) {
  FewRowsArgs few = with_norm(args.norm, args.linear);
  if (args.keeps_normed) few.normed_out = args.norm.out;
  launch_few_rows(few, on);
}

void cuda_gated(const GatedArgs& args, const CudaLaunch& on) {
  FewRowsArgs few = with_norm(args.norm, args.gate_up);
  few.gated_out = args.silu.out;
  launch_few_rows(few, on);
}

}  // namespace sluice
