#include "core/weights/convert.hpp"

#include <cstring>

#include "core/float16.hpp"

namespace sluice {
namespace {

// How one type is stored and what it means.
struct F32 {
  using Stored = float;
  static float widen(float x) { return x; }
  static float narrow(float x) { return x; }
};
struct Bf16 {
  using Stored = std::uint16_t;
  static float widen(std::uint16_t x) { return bf16_to_f32(x); }
  static std::uint16_t narrow(float x) { return f32_to_bf16(x); }
};
struct F16 {
  using Stored = std::uint16_t;
  static float widen(std::uint16_t x) { return f16_to_f32(x); }
  static std::uint16_t narrow(float x) { return f32_to_f16(x); }
};

template <typename From, typename To>
void convert_all(const std::byte* from, std::byte* to, std::uint64_t n) {
  typename From::Stored in;
  typename To::Stored out;
  for (std::uint64_t i = 0; i < n; ++i) {
    std::memcpy(&in, from + i * sizeof(in), sizeof(in));
    out = To::narrow(From::widen(in));
    std::memcpy(to + i * sizeof(out), &out, sizeof(out));
  }
}

template <typename From>
void convert_from(const std::byte* from, DType to_type, std::byte* to, std::uint64_t n) {
  switch (to_type) {
    case DType::f32: return convert_all<From, F32>(from, to, n);
    case DType::bf16: return convert_all<From, Bf16>(from, to, n);
    case DType::f16: return convert_all<From, F16>(from, to, n);
  }
}

}  // namespace

void convert(DType from_type, const std::byte* from, DType to_type, std::byte* to,
             std::uint64_t n) {
  if (from_type == to_type) {
    if (n != 0) std::memcpy(to, from, n * size_of(to_type));
    return;
  }
  switch (from_type) {
    case DType::f32: return convert_from<F32>(from, to_type, to, n);
    case DType::bf16: return convert_from<Bf16>(from, to_type, to, n);
    case DType::f16: return convert_from<F16>(from, to_type, to, n);
  }
}

}  // namespace sluice
