#include "tests/ops/reference.hpp"

#include <bit>
#include <cstring>
#include <limits>

namespace sluice::test {
namespace {

struct Format {
  int precision;  // bits of the significand, the leading one among them
  int least;      // the exponent of the smallest normal number
  double largest;
};

Format format_of(DType type) {
  switch (type) {
    case DType::f32: return {24, -126, std::numeric_limits<float>::max()};
    case DType::bf16: return {8, -126, 0x1.fep127};
    case DType::f16: return {11, -14, 65504};
  }
  return {};
}

}  // namespace

double ulp(DType type, double value) {
  const Format format = format_of(type);
  const int exponent = value == 0 ? format.least : std::max(std::ilogb(value), format.least);
  return std::ldexp(1.0, exponent - (format.precision - 1));
}

double round_to(DType type, double value) {
  if (!std::isfinite(value)) return value;
  const double unit = ulp(type, value);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > format_of(type).largest
             ? std::copysign(std::numeric_limits<double>::infinity(), value)
             : std::copysign(rounded, value);
}

Tensor Tensor::random(DType type, std::size_t count, std::mt19937_64& rng, double scale) {
  std::normal_distribution<double> normal(0, scale);
  Tensor tensor(type, count);
  for (std::size_t i = 0; i < count; ++i) tensor.set(i, normal(rng));
  return tensor;
}

double Tensor::get(std::size_t i) const {
  if (type_ == DType::f32) {
    float value;
    std::memcpy(&value, bytes_.data() + i * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes_.data() + i * 2, 2);
  if (type_ == DType::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) {
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(fraction + 1024, exponent - 25);
}

void Tensor::set(std::size_t i, double value) {
  const double rounded = round_to(type_, value);
  if (type_ == DType::f32) {
    const auto single = static_cast<float>(rounded);
    std::memcpy(bytes_.data() + i * 4, &single, 4);
    return;
  }
  std::uint16_t bits = 0;
  if (type_ == DType::bf16) {
    bits =
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(rounded)) >> 16);
  } else {
    const auto sign = static_cast<std::uint16_t>(std::signbit(rounded) ? 0x8000 : 0);
    const double size = std::abs(rounded);
    if (std::isnan(rounded)) {
      bits = 0x7e00;
    } else if (std::isinf(rounded)) {
      bits = 0x7c00;
    } else if (size < 0x1p-14) {
      bits = static_cast<std::uint16_t>(size * 0x1p24);
    } else {
      const int exponent = std::ilogb(size);
      const auto fraction = static_cast<std::uint16_t>(std::ldexp(size, 10 - exponent) - 1024);
      bits = static_cast<std::uint16_t>((exponent + 15) << 10 | fraction);
    }
    bits = static_cast<std::uint16_t>(bits | sign);
  }
  std::memcpy(bytes_.data() + i * 2, &bits, 2);
}

}  // namespace sluice::test
