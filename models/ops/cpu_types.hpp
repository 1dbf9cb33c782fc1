// The narrow element types as kernels see them in memory: distinct types, so that overloads choose
// the conversion.
#pragma once
#include <cstdint>

#include "core/float16.hpp"

namespace sluice::cpu {

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float widen(float value) { return value; }
inline float widen(Bf16 value) { return bf16_to_f32(value.bits); }
inline float widen(F16 value) { return f16_to_f32(value.bits); }

}  // namespace sluice::cpu
