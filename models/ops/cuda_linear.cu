#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_mma.cuh"

namespace sluice {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsPerBlock = 16;  // of the weight matrix: the m of the mma instruction
constexpr int kTokensPerTile = 8;  // its n
constexpr int kStep = 64;          // weights of one row that a warp reads at a time
constexpr int kUnroll = 4;

// Weights are read once: they should not push activations out of the first-level cache.
__device__ inline uint4 load_weights(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

__device__ inline float value_at(const void* data, DType type, std::size_t i) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::bf16: return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::f16: return to_float(static_cast<const __half*>(data)[i]);
  }
  return 0;
}

// One element of y, its sum in f32, to where it belongs.
template <typename T>
__device__ inline void finish(const LinearArgs& args, std::uint32_t row, std::uint32_t n,
                              float sum) {
  if (args.bias) sum += value_at(args.bias, args.bias_type, n);
  const std::size_t at = std::size_t{row} * args.n + n;
  if (args.residual) {
    T* residual = static_cast<T*>(args.residual) + at;
    *residual = from_float<T>(to_float(*residual) + rounded<T>(sum));
  } else {
    static_cast<T*>(args.out)[at] = from_float<T>(sum);
  }
}

struct WeightPieces {
  uint4 upper[2], lower[2];  // rows g and g + 8, two pieces of 8 weights each
};

// Tokens are padded to tiles of 8 and the warps' shares of k are summed in ascending order, so a
// token's result is the same alone and among others.
//
// The order of k within 32 is permuted alike on both sides of the product, so that each thread reads
// 16 contiguous bytes of a row: elements 8q..8q+7 serve as the fragments of two instructions.
template <typename T, int kTiles>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(const LinearArgs args) {
  __shared__ float partial[kWarps][kRowsPerBlock][kTokensPerTile * kTiles];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int g = lane / 4, q = lane % 4;
  const std::uint32_t first_row = blockIdx.x * kRowsPerBlock;
  const auto k = static_cast<int>(args.k);
  const T* weights = reinterpret_cast<const T*>(args.weight);
  const bool has_upper = first_row + g < args.n, has_lower = first_row + g + 8 < args.n;
  const T* upper = weights + std::size_t{has_upper ? first_row + g : 0} * args.k;
  const T* lower = weights + std::size_t{has_lower ? first_row + g + 8 : 0} * args.k;

  const auto load = [&](int base) {
    WeightPieces w;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = base + half * 32 + q * 8;
      const uint4 zero = make_uint4(0, 0, 0, 0);
      w.upper[half] = has_upper && at < k ? load_weights(upper + at) : zero;
      w.lower[half] = has_lower && at < k ? load_weights(lower + at) : zero;
    }
    return w;
  };

  float sums[kTiles][4] = {};
  const auto multiply = [&](const WeightPieces& w, int base) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = base + half * 32 + q * 8;
      const uint32_t a0[4] = {w.upper[half].x, w.lower[half].x, w.upper[half].y, w.lower[half].y};
      const uint32_t a1[4] = {w.upper[half].z, w.lower[half].z, w.upper[half].w, w.lower[half].w};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const std::uint32_t token = tile * kTokensPerTile + g;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (token < args.rows && at < k)
          x = *reinterpret_cast<const uint4*>(static_cast<const T*>(args.x) +
                                              std::size_t{token} * args.k + at);
        mma(sums[tile], a0, {x.x, x.y}, T{});
        mma(sums[tile], a1, {x.z, x.w}, T{});
      }
    }
  };

  constexpr int kStride = kWarps * kStep;
  int base = warp * kStep;
  WeightPieces ahead[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) ahead[i] = load(base + i * kStride);
  wait_for_previous();
  let_next_begin();
  for (; base < k; base += kUnroll * kStride) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const WeightPieces now = ahead[i];
      ahead[i] = load(base + (kUnroll + i) * kStride);
      multiply(now, base + i * kStride);
    }
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      partial[warp][g + i / 2 * 8][tile * kTokensPerTile + q * 2 + i % 2] = sums[tile][i];
  __syncthreads();
  constexpr int kOutputs = kRowsPerBlock * kTokensPerTile * kTiles;
  for (int i = threadIdx.x; i < kOutputs; i += kThreads) {
    const int row = i % kRowsPerBlock;
    const std::uint32_t token = i / kRowsPerBlock;
    if (token >= args.rows || first_row + row >= args.n) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += partial[w][row][token];
    finish<T>(args, token, first_row + row, sum);
  }
}

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
  if (threadIdx.x % kWarp == 0) finish<T>(args, row, n, sum);
}

template <typename T>
__global__ void finish_kernel(const LinearArgs args) {
  wait_for_previous();
  const std::size_t total = std::size_t{args.rows} * args.n;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < total;
       i += std::size_t{gridDim.x} * blockDim.x)
    finish<T>(args, i / args.n, i % args.n, to_float(static_cast<const T*>(args.out)[i]));
}

}  // namespace

void cuda_linear_few(const LinearArgs& args, const CudaLaunch& on) {
  const bool tensor_cores = args.type != DType::f32 && args.type == args.weight_type &&
                            args.k % 8 == 0 && args.rows <= kFewRows;
  with_type(args.type, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, float>) {
      if (tensor_cores) {
        const dim3 grid((args.n + kRowsPerBlock - 1) / kRowsPerBlock);
        const auto kernel =
            args.rows <= kTokensPerTile ? few_rows_kernel<T, 1> : few_rows_kernel<T, 2>;
        launch(kernel, grid, kThreads, 0, on.stream, on.overlap, args);
        return;
      }
    }
    with_type(args.weight_type, [&](auto w) {
      const dim3 grid((args.n + kWarps - 1) / kWarps, args.rows);
      launch(any_rows_kernel<T, decltype(w)>, grid, kThreads, 0, on.stream, on.overlap, args);
    });
  });
}

void cuda_linear_finish(const LinearArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    const std::size_t total = std::size_t{args.rows} * args.n;
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>((total + 255) / 256, 4096));
    launch(finish_kernel<decltype(t)>, blocks, 256, 0, on.stream, on.overlap, args);
  });
}

}  // namespace sluice
