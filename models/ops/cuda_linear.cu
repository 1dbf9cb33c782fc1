#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_mma.cuh"
#include "models/ops/cuda_norm.cuh"

namespace sluice {
namespace {

constexpr int kGroupRows = 16;     // of the weight matrix: the m of the mma instruction
constexpr int kTokensPerTile = 8;  // its n
constexpr int kStep = 64;          // weights of one row that a warp reads at a time

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

// Weights are read once: they should not push activations out of the first-level cache.
__device__ inline uint4 load_weights(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

__device__ inline float with_bias(const LinearArgs& args, std::uint32_t n, float sum) {
  return args.bias ? sum + value_at(args.bias, args.bias_type, n) : sum;
}

// One element of y, its sum in f32, to where it belongs. `before`: the residual's, if there is one.
template <typename T>
__device__ inline void finish(const LinearArgs& args, std::size_t at, std::uint32_t n, float sum,
                              float before) {
  sum = with_bias(args, n, sum);
  if (args.residual)
    static_cast<T*>(args.residual)[at] = from_float<T>(before + rounded<T>(sum));
  else
    static_cast<T*>(args.out)[at] = from_float<T>(sum);
}
template <typename T>
__device__ inline float residual_at(const LinearArgs& args, std::size_t at) {
  return args.residual ? to_float(static_cast<const T*>(args.residual)[at]) : 0.0f;
}

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
template <typename T>
struct GroupRows {
  const T* upper = nullptr;
  const T* lower = nullptr;
  bool has_upper = false, has_lower = false;

  __device__ GroupRows(const FewRowsArgs& args, std::uint32_t group, int g) {
    const int up = row_of_group(args, group, g), low = row_of_group(args, group, g + 8);
    has_upper = up >= 0;
    has_lower = low >= 0;
    const T* weights = reinterpret_cast<const T*>(args.linear.weight);
    upper = weights + std::size_t(has_upper ? up : 0) * args.linear.k;
    lower = weights + std::size_t(has_lower ? low : 0) * args.linear.k;
  }
};

struct WeightPieces {
  uint4 upper[2], lower[2];  // two pieces of 8 weights each
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
// The order of k within 32 is permuted alike on both sides of the product, so that each thread reads
// 16 contiguous bytes of a row: elements 8q..8q+7 serve as the fragments of two instructions.
template <typename T, int kTiles, bool kStaged, int kWarps, int kUnroll, int kBlocks>
__global__ void __launch_bounds__(kWarps* kWarp, kBlocks) few_rows_kernel(const FewRowsArgs args) {
  constexpr int kThreads = kWarps * kWarp;
  constexpr int kStride = kWarps * kStep;
  constexpr int kRound = kUnroll * kStride;  // weights of one row that a block has under way
  static_assert(kThreads >= kNormThreads && kThreads >= kGroupRows * int(kFewRows));
  __shared__ float partial[2][kWarps][kGroupRows][kTokensPerTile * kTiles];
  extern __shared__ __align__(16) unsigned char shared[];
  const LinearArgs& linear = args.linear;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int g = lane / 4, q = lane % 4;
  const auto k = static_cast<int>(linear.k);
  const int rounds = (k + kRound - 1) / kRound;
  const int first = warp * kStep + q * 8;

  const auto load = [&](const GroupRows<T>& rows, int base) {
    WeightPieces w;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = base + half * 32;
      const uint4 zero = make_uint4(0, 0, 0, 0);
      w.upper[half] = rows.has_upper && at < k ? load_weights(rows.upper + at) : zero;
      w.lower[half] = rows.has_lower && at < k ? load_weights(rows.lower + at) : zero;
    }
    return w;
  };
  WeightPieces ahead[kUnroll];
  GroupRows<T> rows(args, blockIdx.x, g);
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
  const auto multiply = [&](const WeightPieces& w, int base) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = base + half * 32;
      const uint32_t a0[4] = {w.upper[half].x, w.lower[half].x, w.upper[half].y, w.lower[half].y};
      const uint32_t a1[4] = {w.upper[half].z, w.lower[half].z, w.upper[half].w, w.lower[half].w};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const std::uint32_t token = tile * kTokensPerTile + g;
        uint4 b = make_uint4(0, 0, 0, 0);
        if (token < linear.rows && at < k)
          b = *reinterpret_cast<const uint4*>(x + std::size_t{token} * x_width + at);
        mma(sums[tile], a0, {b.x, b.y}, T{});
        mma(sums[tile], a1, {b.z, b.w}, T{});
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
        rows = GroupRows<T>(args, group + gridDim.x, g);
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
      const float gate = rounded<T>(with_bias(linear, n, sum_of(mine)));
      const float up = rounded<T>(with_bias(linear, width + n, sum_of(mine + 8)));
      static_cast<T*>(args.gated_out)[out_at] = from_float<T>(rounded<T>(silu(gate)) * up);
    } else if (finishes) {
      finish<T>(linear, out_at, n, sum_of(mine), before);
    }
    side ^= 1;
  }
}

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// A warp per output: for activations in f32, and for inner dimensions that are no multiple of 8.
template <typename T, typename W>
__global__ void __launch_bounds__(kThreads) any_rows_kernel(const LinearArgs args) {
  wait_for_previous();
  const std::uint32_t n = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const std::uint32_t row = blockIdx.y;
  if (n >= args.n) return;
  const W* weights = reinterpret_cast<const W*>(args.weight) + std::size_t{n} * args.k;
  const T* x = static_cast<const T*>(args.x) + std::size_t{row} * args.k;
  float sum = 0;
  for (std::uint32_t i = threadIdx.x % kWarp; i < args.k; i += kWarp)
    sum = fmaf(to_float(x[i]), to_float(weights[i]), sum);
  sum = warp_sum(sum);
  const std::size_t at = std::size_t{row} * args.n + n;
  if (threadIdx.x % kWarp == 0) finish<T>(args, at, n, sum, residual_at<T>(args, at));
}

// Eight outputs a thread; n is a multiple of 8.
template <typename T>
__global__ void __launch_bounds__(kThreads) residual_kernel(const LinearArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t n = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (n >= args.n) return;
  const std::size_t row = std::size_t{blockIdx.y} * args.n;
  T* const residual = static_cast<T*>(args.residual) + row;
  const Eight<T> before = load_eight(residual, n, args.n);
  Eight<T> y = load_eight(static_cast<const T*>(args.out) + row, n, args.n);
#pragma unroll
  for (int e = 0; e < 8; ++e) y.v[e] = from_float<T>(to_float(before.v[e]) + to_float(y.v[e]));
  store_eight(residual, n, args.n, y);
}

std::uint32_t divided_up(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

bool on_tensor_cores(const LinearArgs& args) {
  return args.type != DType::f32 && args.type == args.weight_type && args.k % 8 == 0 &&
         args.rows <= kFewRows;
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

template <typename T, int kTiles, bool kStaged, int kWarps, int kUnroll, int kBlocks>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  const auto kernel = few_rows_kernel<T, kTiles, kStaged, kWarps, kUnroll, kBlocks>;
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
// the order of sums, so it depends on the matrix alone.
template <typename T, int kTiles, bool kStaged>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  if (args.groups > 2 * on.processors)
    launch_few_rows<T, kTiles, kStaged, 8, 2, 3>(args, on);
  else
    launch_few_rows<T, kTiles, kStaged, 16, kTiles == 1 ? 4 : 3, 1>(args, on);
}

void launch_few_rows(FewRowsArgs args, const CudaLaunch& on) {
  args.groups = args.gated_out ? divided_up(args.linear.n / 2, kGroupRows / 2)
                               : divided_up(args.linear.n, kGroupRows);
  with_type(args.linear.type, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, float>) {
      if (can_stage(args.linear, args.norm_weight))
        launch_few_rows<T, 1, true>(args, on);
      else if (args.linear.rows <= kTokensPerTile)
        launch_few_rows<T, 1, false>(args, on);
      else
        launch_few_rows<T, 2, false>(args, on);
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
  with_type(args.type, [&](auto t) {
    with_type(args.weight_type, [&](auto w) {
      const dim3 grid(divided_up(args.n, kWarps), args.rows);
      launch(any_rows_kernel<decltype(t), decltype(w)>, grid, kThreads, 0, on.stream, on.overlap,
             args);
    });
  });
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

void cuda_add_residual(const LinearArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    const dim3 grid(divided_up(args.n, kThreads * 8), args.rows);
    launch(residual_kernel<decltype(t)>, grid, kThreads, 0, on.stream, on.overlap, args);
  });
}

}  // namespace sluice
