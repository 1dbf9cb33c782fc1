#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_finish.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_mma.cuh"
#include "models/ops/cuda_norm.cuh"
#include "models/ops/cuda_weight_formats.cuh"

namespace sluice {
namespace {

constexpr int kGroupRows = 16;     // of the weight matrix: the m of the mma instruction
constexpr int kTokensPerTile = 8;  // its n
constexpr int kPieces = 2;         // of 16 bytes that a lane reads of a row at a time

// Rows of activations that a block brings into shared memory, and normalises, at most: with more,
// measured on an H200, it is done later than if it reads them where they are.
constexpr std::uint32_t kStagedRows = 2;
// What a row of activations in shared memory is longer than k, so that the rows of a tile lie in
// different banks.
constexpr std::uint32_t kRowGap = 32;

// A product and what is done to its rows before and after.
struct FewRowsArgs {
  LinearArgs linear;                       // x is not yet normalised where there is a norm
  const std::byte* norm_weight = nullptr;  // [k] of norm_type, or null
  DType norm_type = DType::bf16;
  float eps = 0;
  void* gated_out = nullptr;  // [rows, n / 2]: SiLU of the first half times the second; or null
  std::uint32_t groups = 0;   // of 16 rows of weights
};

// Row `i` of a group of 16, or -1: for a gated product 8 rows of the gate and the 8 of up that belong
// to them.
__device__ inline int row_of_group(const FewRowsArgs& args, std::uint32_t group, int i) {
  const int n = args.linear.n, half = n / 2;
  if (!args.gated_out) {
    const int row = group * kGroupRows + i;
    return row < n ? row : -1;
  }
  const int row = group * 8 + i % 8;
  return row < half ? row + i / 8 * half : -1;
}

// The two rows of a group that a lane reads: fragment rows g and g + 8.
template <typename Format>
struct GroupRows {
  typename Format::Row upper, lower;
  bool has_upper = false, has_lower = false;

  __device__ GroupRows(const FewRowsArgs& args, std::uint32_t group, int g) {
    const int up = row_of_group(args, group, g), low = row_of_group(args, group, g + 8);
    has_upper = up >= 0;
    has_lower = low >= 0;
    upper = Format::row(args.linear, has_upper ? up : 0);
    lower = Format::row(args.linear, has_lower ? low : 0);
  }
};

template <typename Format>
struct WeightPieces {
  typename Format::Piece upper[kPieces], lower[kPieces];
};

// Brings the activations into shared memory, [rows][k + kRowGap], normalised where asked for, with
// `norm`, [k] of shared memory. A thread works on the same columns throughout.
template <typename T, int kThreads>
__device__ void stage_rows(const FewRowsArgs& args, T* staged, const float* norm) {
  const std::uint32_t k = args.linear.k, rows = args.linear.rows, width = k + kRowGap;
  const std::uint32_t first = threadIdx.x * 8, stride = (norm ? kNormThreads : kThreads) * 8;
  const bool works = !norm || threadIdx.x < kNormThreads;
  const T* x = static_cast<const T*>(args.linear.x);
  __shared__ float warp_sums[kStagedRows][kNormWarps];
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
}

// Blocks stay and take group after group of 16 rows of weights, reading ahead across groups and, at
// the start, while the kernel before still runs. Tokens are padded to tiles of 8 and the warps'
// shares of k are summed in ascending order, so a token's result is the same alone and among others.
//
// The order of k is permuted alike on both sides of the product, so that each thread reads 16
// contiguous bytes of a row: lane q of four has piece q, whose weights serve as the fragments of
// several instructions, four to each.
template <typename T, typename Format, int kTiles, bool kStaged, int kWarps, int kUnroll,
          int kBlocks>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocks) few_rows_kernel(const FewRowsArgs args) {
  constexpr int kThreads = kWarps * kWarp;
  constexpr int kSpan = 4 * Format::kPieceWeights;  // of one row that four lanes read at a time
  constexpr int kStride = kWarps * kPieces * kSpan;
  constexpr int kRound = kUnroll * kStride;  // weights of one row that a block has under way
  static_assert(kThreads >= kNormThreads && kThreads >= kGroupRows * int(kFewRows));
  __shared__ float partial[2][kWarps][kGroupRows][kTokensPerTile * kTiles];
  extern __shared__ __align__(16) unsigned char shared[];
  const LinearArgs& linear = args.linear;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int g = lane / 4, q = lane % 4;
  const auto k = static_cast<int>(linear.k);
  const int rounds = (k + kRound - 1) / kRound;
  const int first = warp * kPieces * kSpan + q * Format::kPieceWeights;

  const auto load = [&](const GroupRows<Format>& rows, int base) {
    WeightPieces<Format> w;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int at = base + piece * kSpan;
      if (rows.has_upper) w.upper[piece] = Format::load(rows.upper, at, k);
      if (rows.has_lower) w.lower[piece] = Format::load(rows.lower, at, k);
    }
    return w;
  };
  WeightPieces<Format> ahead[kUnroll];
  GroupRows<Format> rows(args, blockIdx.x, g);
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) ahead[i] = load(rows, first + i * kStride);

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
  const T* const x = kStaged ? staged : static_cast<const T*>(linear.x);
  const std::uint32_t x_width = kStaged ? linear.k + kRowGap : linear.k;

  float sums[kTiles][4] = {};
  const auto multiply = [&](const WeightPieces<Format>& w, int base) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int at = base + piece * kSpan;
      float of_group[kTiles][4] = {};
      uint4 b[kTiles] = {};
      Format::for_fragments(w.upper[piece], w.lower[piece], [&](int i, const FragmentA& a) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const std::uint32_t token = tile * kTokensPerTile + g;
          if (i % 2 == 0)
            b[tile] =
                token < linear.rows && at < k
                    ? *reinterpret_cast<const uint4*>(x + std::size_t{token} * x_width + at + 4 * i)
                    : make_uint4(0, 0, 0, 0);
          uint32_t four[2] = {word_of(b[tile], i % 2 * 2), word_of(b[tile], i % 2 * 2 + 1)};
          Format::order(four);
          mma(Format::kHasGroups ? of_group[tile] : sums[tile], a, four, T{});
        }
      });
      if constexpr (Format::kHasGroups) {
        const float upper = Format::scale(w.upper[piece]), lower = Format::scale(w.lower[piece]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[tile][i] = fmaf(i < 2 ? upper : lower, of_group[tile][i], sums[tile][i]);
      }
    }
  };

  // A thread finishes one of a group's outputs: n of `token`, or the gate and up of it.
  const int group_width = args.gated_out ? 8 : kGroupRows;
  const int mine = threadIdx.x % group_width;
  const std::uint32_t token = threadIdx.x / group_width;
  const std::uint32_t width = args.gated_out ? linear.n / 2 : linear.n;
  int side = 0;
  for (std::uint32_t group = blockIdx.x; group < args.groups; group += gridDim.x) {
    const std::uint32_t n = group * group_width + mine;
    const std::size_t out_at = std::size_t{token} * width + n;
    const bool finishes = token < linear.rows && n < width;
    const float before = finishes ? residual_at<T>(linear, out_at) : 0.0f;
    for (int round = 0; round < rounds; ++round) {
      const int base = first + round * kRound;
      int next = base + kRound;
      if (round + 1 == rounds) {
        next = group + gridDim.x < args.groups ? first : k;
        rows = GroupRows<Format>(args, group + gridDim.x, g);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        multiply(ahead[i], base + i * kStride);
        ahead[i] = load(rows, next + i * kStride);
      }
    }
    // The other side may still be read by those who finish the group before.
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[side][warp][g + i / 2 * 8][tile * kTokensPerTile + q * 2 + i % 2] = sums[tile][i];
        sums[tile][i] = 0;
      }
    __syncthreads();
    const auto sum_of = [&](int row) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += partial[side][w][row][token];
      return sum;
    };
    if (finishes && args.gated_out) {
      const auto y = [&](std::uint32_t row, int of_group) {
        return rounded<T>(with_bias(linear, row, Format::scaled(linear, row, sum_of(of_group))));
      };
      const float gate = y(n, mine), up = y(width + n, mine + 8);
      static_cast<T*>(args.gated_out)[out_at] = from_float<T>(rounded<T>(silu(gate)) * up);
    } else if (finishes) {
      finish<T>(linear, out_at, n, Format::scaled(linear, n, sum_of(mine)), before);
    }
    side ^= 1;
  }
}

std::uint32_t piece_weights(Encoding encoding) {
  return encoding == Encoding::native ? 8 : encoding == Encoding::int8 ? 16 : 32;
}

bool on_tensor_cores(const LinearArgs& args) {
  return args.type != DType::f32 && args.type == args.weight_type &&
         args.k % piece_weights(args.encoding) == 0 && args.rows <= kFewRows;
}

// Shared memory of a block that stages its activations; every architecture in use has as much.
constexpr std::size_t kMostStaged = 96 << 10;

std::size_t staged_bytes(const LinearArgs& args, bool norm) {
  return std::size_t{args.rows} * (args.k + kRowGap) * size_of(args.type) +
         (norm ? args.k * sizeof(float) : 0);
}

bool can_stage(const LinearArgs& args, bool norm) {
  return args.rows <= kStagedRows && staged_bytes(args, norm) <= kMostStaged;
}

template <typename T, typename Format, int kTiles, bool kStaged, int kWarps, int kUnroll,
          int kBlocks>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  const auto kernel = few_rows_kernel<T, Format, kTiles, kStaged, kWarps, kUnroll, kBlocks>;
  if constexpr (kStaged) {
    static const cudaError_t allowed = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostStaged));
    SLUICE_CUDA_CHECK(allowed);
  }
  const std::size_t shared = kStaged ? staged_bytes(args.linear, args.norm_weight) : 0;
  launch(kernel, std::min(args.groups, kBlocks * on.processors), kWarps * kWarp, shared, on.stream,
         on.overlap, args);
}

// About 96 KiB of weights under way on a multiprocessor serve best (measured on an H200). A matrix of
// so few rows that there are at most two groups for each has 16 warps on a group. The choice changes
// the order of sums, so it depends on the matrix alone. A row of codes is so much shorter that there
// fewer pieces of it are under way in a warp, and more blocks.
template <typename T, typename Format, int kTiles, bool kStaged>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  constexpr bool kNative = std::is_same_v<Format, NativeWeights<T>>;
  if (args.groups > 2 * on.processors)
    launch_few_rows<T, Format, kTiles, kStaged, 8, 2, Format::kHasGroups ? 2 : 3>(args, on);
  else if constexpr (kNative)
    launch_few_rows<T, Format, kTiles, kStaged, 16, kTiles == 1 ? 4 : 3, 1>(args, on);
  else
    launch_few_rows<T, Format, kTiles, kStaged, 16, 1, kTiles == 1 ? 2 : 1>(args, on);
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
  launch_few_rows(with_norm(args.norm, args.linear), on);
}

void cuda_gated(const GatedArgs& args, const CudaLaunch& on) {
  FewRowsArgs few = with_norm(args.norm, args.gate_up);
  few.gated_out = args.silu.out;
  launch_few_rows(few, on);
}

}  // namespace sluice
