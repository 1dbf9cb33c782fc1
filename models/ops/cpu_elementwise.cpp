#include "models/ops/cpu_targets.hpp"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/ops/cpu_elementwise.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "models/ops/cpu_kernels.hpp"
#include "models/ops/cpu_pages.hpp"
#include "models/ops/cpu_rows-inl.hpp"
#include "models/ops/cpu_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// `count` elements at `at` of an array of `type`.
HWY_INLINE V widen_some(DType type, const std::byte* from, std::size_t at, std::size_t count) {
  switch (type) {
    case DType::f32: return widen_some(reinterpret_cast<const float*>(from) + at, count);
    case DType::bf16: return widen_some(reinterpret_cast<const Bf16*>(from) + at, count);
    case DType::f16: return widen_some(reinterpret_cast<const F16*>(from) + at, count);
  }
  return hn::Zero(D());
}

template <class T>
HWY_INLINE float inverse_rms(const T* x, std::size_t count, float eps) {
  V squares = hn::Zero(D());
  for (std::size_t i = 0; i < count; i += kLanes) {
    const V value = widen_some(x + i, count - i);
    squares = hn::MulAdd(value, value, squares);
  }
  const float mean = sum_of_lanes(squares) / static_cast<float>(count);
  const V root = hn::Sqrt(hn::Set(D(), mean + eps));
  return 1.0f / hn::GetLane(root);
}

// ---- embed

template <class From, class To>
HWY_INLINE void convert(const From* from, To* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes) {
    narrow_some(widen_some(from + i, count - i), to + i, count - i);
  }
}

template <class T>
void embed_as(const EmbedArgs& args) {
  for_rows(args.rows.count, args.hidden, [&](std::size_t r) HWY_ATTR {
    const std::size_t at = static_cast<std::size_t>(args.rows.tokens[r]) * args.hidden;
    T* to = static_cast<T*>(args.out) + r * args.hidden;
    switch (args.table_type) {
      case DType::f32:
        return convert(reinterpret_cast<const float*>(args.table) + at, to, args.hidden);
      case DType::bf16:
        return convert(reinterpret_cast<const Bf16*>(args.table) + at, to, args.hidden);
      case DType::f16:
        return convert(reinterpret_cast<const F16*>(args.table) + at, to, args.hidden);
    }
  });
}

void embed(const EmbedArgs& args) {
  switch (args.type) {
    case DType::f32: return embed_as<float>(args);
    case DType::bf16: return embed_as<Bf16>(args);
    case DType::f16: return embed_as<F16>(args);
  }
}

// ---- rms_norm

template <class T>
void rms_norm_as(const RmsNormArgs& args) {
  for_rows(args.rows, args.cols, [&](std::size_t r) HWY_ATTR {
    const T* x = static_cast<const T*>(args.x) + r * args.cols;
    T* out = static_cast<T*>(args.out) + r * args.cols;
    const V scale = hn::Set(D(), inverse_rms(x, args.cols, args.eps));
    for (std::size_t i = 0; i < args.cols; i += kLanes) {
      const std::size_t left = args.cols - i;
      const V y = rounded<T>(hn::Mul(widen_some(x + i, left), scale));
      narrow_some(hn::Mul(y, widen_some(args.weight_type, args.weight, i, left)), out + i, left);
    }
  });
}

void rms_norm(const RmsNormArgs& args) {
  switch (args.type) {
    case DType::f32: return rms_norm_as<float>(args);
    case DType::bf16: return rms_norm_as<Bf16>(args);
    case DType::f16: return rms_norm_as<F16>(args);
  }
}

// ---- rope_store

// One head: normalised where `norm` is given, rotated to the position of `cos` and `sin`.
template <class T>
HWY_INLINE void rope_head(const RopeStoreArgs& args, const T* x, const std::byte* norm,
                          const float* cos, const float* sin, T* out) {
  const std::size_t size = args.kv.head_dim;
  const std::size_t half = size / 2;
  float head[kMaxHeadDim + kLanes];
  const V scale = norm ? hn::Set(D(), inverse_rms(x, size, args.eps)) : hn::Zero(D());
  for (std::size_t i = 0; i < size; i += kLanes) {
    V y = widen_some(x + i, size - i);
    if (norm) {
      y = rounded<T>(hn::Mul(y, scale));
      y = rounded<T>(hn::Mul(y, widen_some(args.norm_type, norm, i, size - i)));
    }
    hn::StoreU(y, D(), head + i);
  }
  for (std::size_t i = 0; i < half; i += kLanes) {
    const std::size_t left = half - i;
    const V c = rounded<T>(widen_some(cos + i, left));
    const V s = rounded<T>(widen_some(sin + i, left));
    const V low = widen_some(head + i, left);
    const V high = widen_some(head + half + i, left);
    narrow_some(hn::Sub(rounded<T>(hn::Mul(low, c)), rounded<T>(hn::Mul(high, s))), out + i, left);
    narrow_some(hn::Add(rounded<T>(hn::Mul(high, c)), rounded<T>(hn::Mul(low, s))), out + half + i,
                left);
  }
}

template <class T>
void rope_store_as(const RopeStoreArgs& args) {
  const std::size_t size = args.kv.head_dim;
  const std::size_t columns = (args.heads + 2 * args.kv.kv_heads) * size;
  for_rows(args.rows.count, columns, [&](std::size_t r) HWY_ATTR {
    T* q = static_cast<T*>(args.qkv) + r * columns;
    const T* k = q + args.heads * size;
    const T* v = k + args.kv.kv_heads * size;
    const auto position = static_cast<std::size_t>(args.rows.positions[r]);
    const float* cos = args.cos + position * (size / 2);
    const float* sin = args.sin + position * (size / 2);
    for (std::size_t h = 0; h < args.heads; ++h) {
      rope_head(args, q + h * size, args.q_norm, cos, sin, q + h * size);
    }
    for (std::size_t h = 0; h < args.kv.kv_heads; ++h) {
      T* k_to =
          static_cast<T*>(kv_row(args.kv, sizeof(T), args.rows.sequences[r], position, h, false));
      T* v_to =
          static_cast<T*>(kv_row(args.kv, sizeof(T), args.rows.sequences[r], position, h, true));
      rope_head(args, k + h * size, args.k_norm, cos, sin, k_to);
      std::memcpy(v_to, v + h * size, size * sizeof(T));
    }
  });
}

void rope_store(const RopeStoreArgs& args) {
  switch (args.type) {
    case DType::f32: return rope_store_as<float>(args);
    case DType::bf16: return rope_store_as<Bf16>(args);
    case DType::f16: return rope_store_as<F16>(args);
  }
}

// ---- silu_mul

template <class T>
void silu_mul_as(const SiluMulArgs& args) {
  for_rows(args.rows, args.inter, [&](std::size_t r) HWY_ATTR {
    const T* gate = static_cast<const T*>(args.gate_up) + r * 2 * args.inter;
    const T* up = gate + args.inter;
    T* out = static_cast<T*>(args.out) + r * args.inter;
    const V one = hn::Set(D(), 1.0f);
    for (std::size_t i = 0; i < args.inter; i += kLanes) {
      const std::size_t left = args.inter - i;
      const V x = widen_some(gate + i, left);
      const V silu = rounded<T>(hn::Div(x, hn::Add(one, exp(hn::Neg(x)))));
      narrow_some(hn::Mul(silu, widen_some(up + i, left)), out + i, left);
    }
  });
}

void silu_mul(const SiluMulArgs& args) {
  switch (args.type) {
    case DType::f32: return silu_mul_as<float>(args);
    case DType::bf16: return silu_mul_as<Bf16>(args);
    case DType::f16: return silu_mul_as<F16>(args);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(embed);
HWY_EXPORT(rms_norm);
HWY_EXPORT(rope_store);
HWY_EXPORT(silu_mul);

void embed(const EmbedArgs& args) { HWY_DYNAMIC_DISPATCH(embed)(args); }
void rms_norm(const RmsNormArgs& args) { HWY_DYNAMIC_DISPATCH(rms_norm)(args); }
void rope_store(const RopeStoreArgs& args) { HWY_DYNAMIC_DISPATCH(rope_store)(args); }
void silu_mul(const SiluMulArgs& args) { HWY_DYNAMIC_DISPATCH(silu_mul)(args); }

}  // namespace sluice::cpu
#endif
