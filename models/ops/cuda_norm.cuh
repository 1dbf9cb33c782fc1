// The arithmetic of RMSNorm, for every kernel that normalises: the same bits wherever it happens.
#pragma once
#include "models/ops/cuda_common.cuh"

namespace sluice {

// A row is summed by the first this many threads of a block, each taking eight values at a time.
inline constexpr int kNormThreads = 256;
inline constexpr int kNormWarps = kNormThreads / kWarp;

// squares += those of eight values.
template <typename T>
__device__ inline void add_squares(float& squares, const Eight<T>& values) {
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float value = to_float(values.v[e]);
    squares = fmaf(value, value, squares);
  }
}

// This thread's part of the sum of squares of `x`, which has `cols` values; one of the first
// kNormThreads.
template <typename T>
__device__ inline float squares_of(const T* x, std::uint32_t cols) {
  float squares = 0;
  for (std::uint32_t i = threadIdx.x * 8; i < cols; i += kNormThreads * 8)
    add_squares(squares, load_eight(x, i, cols));
  return squares;
}

// 1 / rms from the warps' sums of squares.
__device__ inline float inverse_rms(const float (&warp_sums)[kNormWarps], std::uint32_t cols,
                                    float eps) {
  float total = 0;
#pragma unroll
  for (int w = 0; w < kNormWarps; ++w) total += warp_sums[w];
  return rsqrtf(total / float(cols) + eps);
}

template <typename T>
__device__ inline T normalised(T x, float scale, float weight) {
  return from_float<T>(rounded<T>(to_float(x) * scale) * weight);
}

}  // namespace sluice
