// Types, rounding and reductions that the CUDA kernels share.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/device/cuda_error.hpp"
#include "core/dtype.hpp"

namespace sluice {

constexpr std::uint32_t divided_up(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <typename T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

// What is left of `x` when it is stored as T.
template <typename T>
__device__ inline float rounded(float x) {
  return to_float(from_float<T>(x));
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}

// Eight values that are loaded and stored together, 16 bytes at a time.
template <typename T>
struct alignas(16) Eight {
  T v[8];
};

// Values i to i + 7 of `data`, of which there are `count`; zeros beyond.
template <typename T>
__device__ inline Eight<T> load_eight(const T* data, std::uint32_t i, std::uint32_t count) {
  if (count % 8 == 0) return *reinterpret_cast<const Eight<T>*>(data + i);
  Eight<T> out;
#pragma unroll
  for (int e = 0; e < 8; ++e) out.v[e] = i + e < count ? data[i + e] : from_float<T>(0.0f);
  return out;
}
template <typename T>
__device__ inline void store_eight(T* data, std::uint32_t i, std::uint32_t count,
                                   const Eight<T>& values) {
  if (count % 8 == 0) {
    *reinterpret_cast<Eight<T>*>(data + i) = values;
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e)
    if (i + e < count) data[i + e] = values.v[e];
}

// A value of an array whose type is known when the kernel runs.
__device__ inline float value_at(const void* data, DType type, std::size_t i) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::bf16: return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::f16: return to_float(static_cast<const __half*>(data)[i]);
  }
  return 0;
}

__device__ inline void load_eight(const void* data, DType type, std::uint32_t i,
                                  std::uint32_t count, float (&out)[8]) {
  const auto widen = [&](const auto& eight) {
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = to_float(eight.v[e]);
  };
  switch (type) {
    case DType::f32: return widen(load_eight(static_cast<const float*>(data), i, count));
    case DType::bf16: return widen(load_eight(static_cast<const __nv_bfloat16*>(data), i, count));
    case DType::f16: return widen(load_eight(static_cast<const __half*>(data), i, count));
  }
}

// A matrix [n, k] as it is stored; scales where it is codes.
struct StoredMatrix {
  const std::byte* weight = nullptr;
  const std::byte* scales = nullptr;
  std::uint32_t k = 0;
};

__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

// The sum over a block of kThreads, in every thread; the order depends on kThreads alone.
template <int kThreads>
__device__ inline float block_sum(float x) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ float partial[kWarps];
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = x;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += partial[w];
  __syncthreads();
  return total;
}

// A barrier for the first kThreads of a block, which may have more.
template <int kThreads>
__device__ inline void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Programmatic dependent launch (sm_90 and later): a kernel may begin before the one ahead of it has
// ended, and reads what that one wrote after wait_for_previous() only; weights it may read at once.
//
// Every thread of every kernel waits. A kernel calls let_next_begin() after that, so that the next
// one begins when all but the kernel ahead of it have ended; the exceptions, products with a residual,
// are followed by kernels that read nothing but weights before they wait. Behind a kernel that calls it
// after its own wait, what was written by kernels before that one may be read at once, too: they had ended.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <typename... Params, typename... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, bool overlap_previous, Args&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap_previous ? 1 : 0;
  SLUICE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...));
}

template <DType>
struct CudaTypeOf;
template <>
struct CudaTypeOf<DType::f32> {
  using type = float;
};
template <>
struct CudaTypeOf<DType::bf16> {
  using type = __nv_bfloat16;
};
template <>
struct CudaTypeOf<DType::f16> {
  using type = __half;
};

// Calls f with a value of the CUDA type that `type` names.
template <typename F>
void with_type(DType type, F f) {
  switch (type) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f16: return f(__half{});
  }
}

}  // namespace sluice
