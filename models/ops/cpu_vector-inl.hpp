// Vectors of f32, and the element types widened into them and rounded out of them. Included once per
// instruction set, as Highway's own -inl headers are.
#if defined(SLUICE_CPU_VECTOR_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_VECTOR_INL
#undef SLUICE_CPU_VECTOR_INL
#else
#define SLUICE_CPU_VECTOR_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "models/ops/cpu_types.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DU32 = hn::Rebind<std::uint32_t, D>;
using DI32 = hn::Rebind<std::int32_t, D>;
using DU16 = hn::Rebind<std::uint16_t, D>;  // half as wide
using VU32 = hn::Vec<DU32>;

inline constexpr std::size_t kLanes = hn::MaxLanes(D());
static_assert(kLanes >= 4 && (kLanes & (kLanes - 1)) == 0);

// Whether the processor converts f16 itself.
#undef SLUICE_CPU_F16C
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)
#define SLUICE_CPU_F16C 1
#else
#define SLUICE_CPU_F16C 0
#endif

HWY_INLINE VU32 bits_of(V v) { return hn::BitCast(DU32(), v); }
HWY_INLINE V float_of(VU32 v) { return hn::BitCast(D(), v); }

// To the nearest bf16, ties to even, as the upper half of an f32; the lower half is not cleared.
HWY_INLINE VU32 bf16_rounded(V v) {
  const DU32 du;
  const VU32 bits = bits_of(v);
  const VU32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const VU32 rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  const VU32 quiet = hn::Or(bits, hn::Set(du, 0x400000));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
}

#if SLUICE_CPU_F16C
using DF16 = hn::Rebind<hwy::float16_t, D>;

HWY_INLINE V f16_rounded(V v) { return hn::PromoteTo(D(), hn::DemoteTo(DF16(), v)); }
#else
// The same steps as f16_to_f32 in core/float16.hpp.
HWY_INLINE V widen_f16(VU32 half) {
  const DU32 du;
  const VU32 sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000)));
  const VU32 magnitude = hn::And(half, hn::Set(du, 0x7fff));
  const VU32 rebased = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
  const VU32 special = hn::Or(rebased, hn::Set(du, 0x7f800000));
  const V subnormal =
      hn::Mul(hn::ConvertTo(D(), hn::BitCast(DI32(), magnitude)), hn::Set(D(), 0x1p-24f));
  VU32 wide = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7bff)), special, rebased);
  wide = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), bits_of(subnormal), wide);
  return float_of(hn::Or(wide, sign));
}

// The same steps as f32_to_f16 there; the result in the lower 16 bits.
HWY_INLINE VU32 narrow_f16(V v) {
  const DU32 du;
  const VU32 bits = bits_of(v);
  const VU32 sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  const VU32 magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
  const VU32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const VU32 normal =
      hn::Sub(hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfff)))),
              hn::Set(du, 112u << 10));
  const VU32 subnormal =
      hn::Sub(bits_of(hn::Add(float_of(magnitude), hn::Set(D(), 0.5f))), hn::Set(du, 0x3f000000));
  const VU32 quiet =
      hn::Or(hn::Set(du, 0x7e00), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff)));
  VU32 half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefff)), hn::Set(du, 0x7c00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000)), quiet, half);
  return hn::Or(half, sign);
}

HWY_INLINE V f16_rounded(V v) { return widen_f16(narrow_f16(v)); }
#endif

// kLanes elements in their own order.
HWY_INLINE V widen(const float* from) { return hn::LoadU(D(), from); }

HWY_INLINE V widen(const Bf16* from) {
  const VU32 half = hn::PromoteTo(DU32(), hn::LoadU(DU16(), &from->bits));
  return float_of(hn::ShiftLeft<16>(half));
}

// Bits of f16.
HWY_INLINE V widen_halves(hn::Vec<DU16> bits) {
#if SLUICE_CPU_F16C
  return hn::PromoteTo(D(), hn::BitCast(DF16(), bits));
#else
  return widen_f16(hn::PromoteTo(DU32(), bits));
#endif
}

HWY_INLINE V widen(const F16* from) { return widen_halves(hn::LoadU(DU16(), &from->bits)); }

HWY_INLINE void narrow(V v, float* to) { hn::StoreU(v, D(), to); }

HWY_INLINE void narrow(V v, Bf16* to) {
  const VU32 half = hn::ShiftRight<16>(bf16_rounded(v));
  hn::StoreU(hn::DemoteTo(DU16(), hn::BitCast(DI32(), half)), DU16(), &to->bits);
}

HWY_INLINE void narrow(V v, F16* to) {
#if SLUICE_CPU_F16C
  hn::StoreU(hn::BitCast(DU16(), hn::DemoteTo(DF16(), v)), DU16(), &to->bits);
#else
  hn::StoreU(hn::DemoteTo(DU16(), hn::BitCast(DI32(), narrow_f16(v))), DU16(), &to->bits);
#endif
}

// What is left of `v` after a store as T and a load.
template <class T>
HWY_INLINE V rounded(V v);
template <>
HWY_INLINE V rounded<float>(V v) {
  return v;
}
template <>
HWY_INLINE V rounded<Bf16>(V v) {
  return float_of(hn::And(bf16_rounded(v), hn::Set(DU32(), 0xffff0000)));
}
template <>
HWY_INLINE V rounded<F16>(V v) {
  return f16_rounded(v);
}

// The first `count` elements, at most kLanes; the other lanes are zero.
template <class T>
HWY_INLINE V widen_some(const T* from, std::size_t count) {
  if (HWY_LIKELY(count >= kLanes)) return widen(from);
  T padded[kLanes] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return widen(padded);
}

template <class T>
HWY_INLINE void narrow_some(V v, T* to, std::size_t count) {
  if (HWY_LIKELY(count >= kLanes)) return narrow(v, to);
  T padded[kLanes];
  narrow(v, padded);
  std::memcpy(to, padded, count * sizeof(T));
}

// A fixed tree over the lanes.
HWY_INLINE float sum_of_lanes(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }
HWY_INLINE float max_of_lanes(V v) { return hn::GetLane(hn::MaxOfLanes(D(), v)); }

// e^x to about one unit in the last place, with infinities, subnormals and NaN as they should be.
HWY_INLINE V exp(V x) {
  const D d;
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -110.0f)), hn::Set(d, 100.0f));
  // x = n ln 2 + r, with ln 2 in two parts so that n times the first is exact.
  const V n = hn::Round(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), bounded);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  // The series of e^r; |r| <= 0.347, so that the first term left out is below 6e-9.
  V sum = hn::Set(d, 1.0f / 5040);
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 720));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 120));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 24));
  sum = hn::MulAdd(sum, r, hn::Set(d, 1.0f / 6));
  sum = hn::MulAdd(sum, r, hn::Set(d, 0.5f));
  sum = hn::MulAdd(hn::Mul(r, r), sum, r);
  sum = hn::Add(sum, hn::Set(d, 1.0f));
  // 2^n in two factors: n alone may lie outside of an exponent's range.
  const auto whole = hn::ConvertTo(DI32(), n);
  const auto first = hn::ShiftRight<1>(whole);
  const auto second = hn::Sub(whole, first);
  const auto bias = hn::Set(DI32(), 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(first, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(second, bias)));
  const V result = hn::Mul(hn::Mul(sum, scale1), scale2);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
