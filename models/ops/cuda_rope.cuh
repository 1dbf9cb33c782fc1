// A warp's work on one head of q or k: norm and rotation, the same bits wherever it happens.
#pragma once
#include "models/ops/cuda_common.cuh"
#include "models/ops/kernel_args.hpp"

namespace sluice {

// Heads of up to this many values, a multiple of 4, can be rotated.
inline constexpr std::uint32_t kMaxRopeDim = 256;

template <typename T>
struct alignas(2 * sizeof(T)) Two {
  T v[2];
};

// Values i and i + 1 of an array whose type is known when the kernel runs; i is even.
__device__ inline float2 load_two(const void* data, DType type, std::uint32_t i) {
  const auto widen = [&](auto t) {
    const auto two =
        *reinterpret_cast<const Two<decltype(t)>*>(static_cast<const decltype(t)*>(data) + i);
    return make_float2(to_float(two.v[0]), to_float(two.v[1]));
  };
  switch (type) {
    case DType::f32: return widen(float{});
    case DType::bf16: return widen(__nv_bfloat16{});
    case DType::f16: return widen(__half{});
  }
  return {};
}

// A lane holds pairs (i, i + head_dim / 2) for i = 2 lane and 2 lane + 1, and these 64 further on.
// What does not depend on the head's values is loaded when the object is made.
template <typename T>
class Rotation {
 public:
  // `norm` is null or head_dim weights.
  __device__ Rotation(const RopeStoreArgs& args, const std::byte* norm, std::uint32_t position)
      : dim_(args.kv.head_dim), eps_(args.eps), has_norm_(norm) {
    const std::uint32_t half = dim_ / 2;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const std::uint32_t i = index(s);
      if (i >= half) continue;
      const float2 cos = load_two(args.cos + std::size_t{position} * half, DType::f32, i);
      const float2 sin = load_two(args.sin + std::size_t{position} * half, DType::f32, i);
      cos_[s][0] = rounded<T>(cos.x);
      cos_[s][1] = rounded<T>(cos.y);
      sin_[s][0] = rounded<T>(sin.x);
      sin_[s][1] = rounded<T>(sin.y);
      if (!norm) continue;
      low_weight_[s] = load_two(norm, args.norm_type, i);
      high_weight_[s] = load_two(norm, args.norm_type, half + i);
    }
  }

  // store(i, two) takes results i and i + 1.
  template <typename Store>
  __device__ void operator()(const T* x, Store store) const {
    const std::uint32_t half = dim_ / 2;
    float low[kSteps][2] = {}, high[kSteps][2] = {}, squares = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const std::uint32_t i = index(s);
      if (i >= half) continue;
      const auto a = *reinterpret_cast<const Two<T>*>(x + i);
      const auto b = *reinterpret_cast<const Two<T>*>(x + half + i);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        low[s][e] = to_float(a.v[e]);
        high[s][e] = to_float(b.v[e]);
        squares = fmaf(low[s][e], low[s][e], fmaf(high[s][e], high[s][e], squares));
      }
    }
    const float scale = has_norm_ ? rsqrtf(warp_sum(squares) / float(dim_) + eps_) : 1.0f;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const std::uint32_t i = index(s);
      if (i >= half) continue;
      Two<T> a, b;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float x0 = low[s][e], x1 = high[s][e];
        if (has_norm_) {
          const float2 a_weight = low_weight_[s], b_weight = high_weight_[s];
          x0 = rounded<T>(rounded<T>(x0 * scale) * (e == 0 ? a_weight.x : a_weight.y));
          x1 = rounded<T>(rounded<T>(x1 * scale) * (e == 0 ? b_weight.x : b_weight.y));
        }
        // Not contracted, where T is float: the products are rounded before they are added.
        a.v[e] = from_float<T>(__fsub_rn(rounded<T>(__fmul_rn(x0, cos_[s][e])),
                                         rounded<T>(__fmul_rn(x1, sin_[s][e]))));
        b.v[e] = from_float<T>(__fadd_rn(rounded<T>(__fmul_rn(x1, cos_[s][e])),
                                         rounded<T>(__fmul_rn(x0, sin_[s][e]))));
      }
      store(i, a);
      store(half + i, b);
    }
  }

 private:
  static constexpr int kSteps = kMaxRopeDim / 2 / (2 * kWarp);
  __device__ static std::uint32_t index(int step) {
    return 2 * (threadIdx.x % kWarp + step * kWarp);
  }

  std::uint32_t dim_;
  float eps_;
  bool has_norm_;
  float cos_[kSteps][2] = {}, sin_[kSteps][2] = {};
  float2 low_weight_[kSteps] = {}, high_weight_[kSteps] = {};
};

// Where a position's key or value lies in the cache.
template <typename T>
__device__ inline T* kv_address(const KvLayer& kv, std::uint32_t sequence, std::uint32_t position,
                                bool value, std::uint32_t head) {
  const std::int32_t page =
      kv.page_table[std::size_t{sequence} * kv.pages_per_sequence + position / kPageTokens];
  T* base = reinterpret_cast<T*>(kv.pages + std::size_t(page) * kv.page_bytes);
  const std::size_t plane = std::size_t{value} * kv.kv_heads + head;
  return base + (plane * kPageTokens + position % kPageTokens) * kv.head_dim;
}

}  // namespace sluice
