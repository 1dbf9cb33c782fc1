// Conversions against the definition of the formats, in double precision.
#include "core/float16.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/weights/convert.hpp"
#include "tests/catch.hpp"

using namespace sluice;

namespace {

// A format of 16 bits: sign, exponent, mantissa, as IEEE 754 lays them out.
struct FloatFormat {
  const char* name;
  int mantissa_bits, bias;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);

  int exponent_of(std::uint16_t bits) const { return (bits & 0x7fff) >> mantissa_bits; }
  int highest_exponent() const { return (1 << (15 - mantissa_bits)) - 1; }
  bool is_nan(std::uint16_t bits) const {
    return exponent_of(bits) == highest_exponent() && (bits & ((1 << mantissa_bits) - 1)) != 0;
  }
  // The value of a pattern that is no NaN; infinity as the next power of two, as rounding sees it.
  double value(std::uint16_t bits) const {
    const int exponent = exponent_of(bits), mantissa = bits & ((1 << mantissa_bits) - 1);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                           : std::ldexp((1 << mantissa_bits) + mantissa,
                                                        exponent - bias - mantissa_bits);
    return bits & 0x8000 ? -magnitude : magnitude;
  }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(highest_exponent() << mantissa_bits);
  }
  // The nearest pattern, ties to the even one, by bisection over all non-negative ones.
  std::uint16_t nearest(double x) const {
    std::uint16_t below = 0, above = infinity();
    const double magnitude = std::fabs(x);
    std::uint16_t found = above;
    if (magnitude < value(above)) {
      while (above - below > 1) {
        const auto middle = static_cast<std::uint16_t>((below + above) / 2);
        (value(middle) <= magnitude ? below : above) = middle;
      }
      const double down = magnitude - value(below), up = value(above) - magnitude;
      found = down < up || (down == up && below % 2 == 0) ? below : above;
    }
    return static_cast<std::uint16_t>(found | (std::signbit(x) ? 0x8000 : 0));
  }
};

constexpr FloatFormat kFloatFormats[] = {{"bf16", 7, 127, bf16_to_f32, f32_to_bf16},
                                         {"f16", 10, 15, f16_to_f32, f32_to_f16}};

}  // namespace

TEST_CASE("every 16-bit pattern widens to its value and narrows back to itself") {
  for (const FloatFormat& format : kFloatFormats) {
    INFO(format.name);
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const float wide = format.widen(bits);
      if (format.is_nan(bits)) {
        const std::uint16_t back = format.narrow(wide);
        if (!std::isnan(wide) || !format.is_nan(back) || (back & 0x8000) != (bits & 0x8000)) {
          FAIL("NaN pattern " << i);
        }
        continue;
      }
      const bool infinite = format.exponent_of(bits) == format.highest_exponent();
      const bool right = infinite ? std::isinf(wide) && std::signbit(wide) == (bits >> 15 != 0)
                                  : static_cast<double>(wide) == format.value(bits);
      if (!right || format.narrow(wide) != bits) FAIL("pattern " << i << " gave " << wide);
    }
  }
}

TEST_CASE("narrowing at every boundary between two 16-bit values rounds to nearest even") {
  for (const FloatFormat& format : kFloatFormats) {
    INFO(format.name);
    for (std::uint16_t below = 0; below < format.infinity(); ++below) {
      const auto above = static_cast<std::uint16_t>(below + 1);
      const double middle = (format.value(below) + format.value(above)) / 2;
      const auto tie = static_cast<float>(middle);
      if (std::isinf(tie) || static_cast<double>(tie) != middle) {
        FAIL("the middle above " << below << " is no float");
      }
      for (const float x : {std::nextafter(tie, 0.0f), tie,
                            std::nextafter(tie, std::numeric_limits<float>::max())}) {
        for (const float signed_x : {x, -x}) {
          if (format.narrow(signed_x) != format.nearest(signed_x)) {
            FAIL(signed_x << " became " << format.narrow(signed_x) << ", not "
                          << format.nearest(signed_x));
          }
        }
      }
    }
  }
}

TEST_CASE("narrowing random floats agrees with double precision") {
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    for (const FloatFormat& format : kFloatFormats) {
      const std::uint16_t got = format.narrow(x);
      const bool right = std::isnan(x)   ? format.is_nan(got)
                         : std::isinf(x) ? (got & 0x7fff) == format.infinity()
                                         : got == format.nearest(x);
      if (!right) FAIL(format.name << " of " << x << " is " << got);
    }
  }
}

TEST_CASE("arrays are cast between all types like their elements") {
  constexpr std::size_t kN = 1003;  // no multiple of a vector's width
  std::vector<float> values(kN);
  std::mt19937 random(7);
  for (float& x : values) x = std::normal_distribution<float>(0, 3)(random);
  const auto widened = [](DType type, const std::byte* data, std::size_t i) {
    if (type == DType::f32) {
      float x;
      std::memcpy(&x, data + i * 4, 4);
      return x;
    }
    std::uint16_t bits;
    std::memcpy(&bits, data + i * 2, 2);
    return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  };
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    // One byte off, as data in a file may lie.
    std::vector<std::byte> in(kN * 4 + 1), out(kN * 4 + 1);
    convert(DType::f32, reinterpret_cast<const std::byte*>(values.data()), from, in.data() + 1, kN);
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      convert(from, in.data() + 1, to, out.data() + 1, kN);
      for (std::size_t i = 0; i < kN; ++i) {
        const double x = widened(from, in.data() + 1, i);
        const FloatFormat& format = kFloatFormats[to == DType::f16];
        const double expected = to == DType::f32 ? x : format.value(format.nearest(x));
        if (widened(to, out.data() + 1, i) != expected) {
          FAIL(name_of(from) << " to " << name_of(to) << ": " << x);
        }
      }
    }
  }
}
