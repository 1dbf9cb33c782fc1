// Quantised rows against loops in double precision that follow the definition, not the code.
#include "core/weights/encoding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/float16.hpp"
#include "tests/catch.hpp"

using namespace sluice;

namespace {

struct Rows {
  Rows(Encoding encoding, std::uint64_t rows, std::uint64_t k)
      : code_row(code_row_bytes(encoding, k)),
        scale_row(scale_row_bytes(encoding, k)),
        codes(rows * code_row, std::byte{0xEE}),
        scales(rows * scale_row, std::byte{0xEE}) {}

  std::uint64_t code_row, scale_row;
  std::vector<std::byte> codes, scales;

  int int8_at(std::uint64_t row, std::uint64_t i) const {
    return std::bit_cast<std::int8_t>(codes[row * code_row + i]);
  }
  // The word of eight is written 0, 2, 4, 6, 1, 3, 5, 7 from its lowest nibble on.
  int int4_at(std::uint64_t row, std::uint64_t i) const {
    const std::uint64_t in_word = i % 8;
    const std::uint64_t nibble = in_word % 2 == 0 ? in_word / 2 : 4 + in_word / 2;
    const auto byte = std::to_integer<int>(codes[row * code_row + i / 8 * 4 + nibble / 2]);
    return nibble % 2 == 0 ? byte & 15 : byte >> 4;
  }
  float scale8(std::uint64_t row) const {
    float scale;
    std::memcpy(&scale, scales.data() + row * scale_row, sizeof(scale));
    return scale;
  }
  GroupScale scale4(std::uint64_t row, std::uint64_t group) const {
    GroupScale scale;
    std::memcpy(&scale, scales.data() + row * scale_row + group * sizeof(scale), sizeof(scale));
    return scale;
  }
};

std::vector<float> random_values(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.002f, 0.02f);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

constexpr std::uint64_t kWidths[] = {1,   7,   8,   15,  16,  31,  64, 100,
                                     127, 128, 129, 192, 256, 300, 576};

}  // namespace

TEST_CASE("int8 has the nearest code of each value and zeros behind the row") {
  for (const std::uint64_t k : kWidths) {
    CAPTURE(k);
    const std::vector<float> values = random_values(3 * k, 7);
    Rows out(Encoding::int8, 3, k);
    REQUIRE(out.code_row % 16 == 0);
    REQUIRE(
        quantise_rows(Encoding::int8, values.data(), 3, k, out.codes.data(), out.scales.data()));
    for (std::uint64_t row = 0; row < 3; ++row) {
      double most = 0;
      for (std::uint64_t i = 0; i < k; ++i)
        most = std::max(most, std::abs(double{values[row * k + i]}));
      CHECK(double{out.scale8(row)} == Approx(most / 127).epsilon(1e-6));
      for (std::uint64_t i = 0; i < k; ++i) {
        const double exact = values[row * k + i] / double{out.scale8(row)};
        const int code = out.int8_at(row, i);
        REQUIRE(std::abs(code) <= 127);
        REQUIRE(std::abs(code - exact) <= 0.5 + 1e-4);
      }
      for (std::uint64_t i = k; i < out.code_row; ++i) REQUIRE(out.int8_at(row, i) == 0);
    }
  }
}

TEST_CASE("int8 rounds halves to the even code and keeps the sign of the largest") {
  // 127 as the largest makes the scale 1.
  const std::vector<float> values{-127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 3.4999f};
  Rows out(Encoding::int8, 1, values.size());
  REQUIRE(quantise_rows(Encoding::int8, values.data(), 1, values.size(), out.codes.data(),
                        out.scales.data()));
  const int expected[] = {-127, 0, 2, 2, 0, -2, 126, 3};
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(out.int8_at(0, i) == expected[i]);
}

TEST_CASE("int4 has the range of each group and the nearest code in it") {
  for (const std::uint64_t k : kWidths) {
    CAPTURE(k);
    const std::vector<float> values = random_values(2 * k, 11);
    Rows out(Encoding::int4, 2, k);
    REQUIRE(
        quantise_rows(Encoding::int4, values.data(), 2, k, out.codes.data(), out.scales.data()));
    for (std::uint64_t row = 0; row < 2; ++row) {
      for (std::uint64_t group = 0; group * 128 < k; ++group) {
        const std::uint64_t first = group * 128, end = std::min(k, first + 128);
        const float* const v = values.data() + row * k;
        double low = 0, high = 0;
        for (std::uint64_t i = first; i < end; ++i) {
          low = std::min(low, double{v[i]});
          high = std::max(high, double{v[i]});
        }
        const GroupScale got = out.scale4(row, group);
        const double scale = f16_to_f32(got.scale), zero = f16_to_f32(got.zero);
        CHECK(got.scale == f32_to_f16(static_cast<float>((high - low) / 15)));
        CHECK(zero == std::clamp(std::nearbyint(-low / scale), 0.0, 15.0));
        for (std::uint64_t i = first; i < end; ++i) {
          const double exact = std::clamp(v[i] / scale + zero, 0.0, 15.0);
          REQUIRE(std::abs(out.int4_at(row, i) - exact) <= 0.5 + 1e-4);
        }
      }
      for (std::uint64_t i = k; i < out.code_row * 2; ++i) REQUIRE(out.int4_at(row, i) == 0);
    }
  }
}

TEST_CASE("values that are zero stay zero") {
  for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
    std::vector<float> values = random_values(256, 3);
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] = 0;
    std::fill_n(values.begin() + 128, 128, 0.0f);
    Rows out(encoding, 1, 256);
    REQUIRE(quantise_rows(encoding, values.data(), 1, 256, out.codes.data(), out.scales.data()));
    std::vector<float> back(256);
    dequantise_rows(encoding, out.codes.data(), out.scales.data(), 1, 256, DType::f32,
                    reinterpret_cast<std::byte*>(back.data()));
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] == 0) REQUIRE(back[i] == 0);
  }
}

TEST_CASE("dequantised rows are scale times code, rounded to the type") {
  for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
    for (const std::uint64_t k : kWidths) {
      CAPTURE(name_of(encoding), k);
      const std::vector<float> values = random_values(2 * k, 5);
      Rows out(encoding, 2, k);
      REQUIRE(quantise_rows(encoding, values.data(), 2, k, out.codes.data(), out.scales.data()));
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        std::vector<std::byte> back(2 * k * size_of(type));
        dequantise_rows(encoding, out.codes.data(), out.scales.data(), 2, k, type, back.data());
        for (std::uint64_t row = 0; row < 2; ++row)
          for (std::uint64_t i = 0; i < k; ++i) {
            float exact;
            if (encoding == Encoding::int8) {
              exact = out.scale8(row) * static_cast<float>(out.int8_at(row, i));
            } else {
              const GroupScale group = out.scale4(row, i / 128);
              exact = f16_to_f32(group.scale) *
                      (static_cast<float>(out.int4_at(row, i)) - f16_to_f32(group.zero));
            }
            const std::byte* const at = back.data() + (row * k + i) * size_of(type);
            if (type == DType::f32) {
              REQUIRE(std::memcmp(at, &exact, 4) == 0);
              continue;
            }
            const std::uint16_t bits = type == DType::bf16 ? f32_to_bf16(exact) : f32_to_f16(exact);
            REQUIRE(std::memcmp(at, &bits, 2) == 0);
          }
      }
    }
  }
}

TEST_CASE("what cannot be quantised is said") {
  for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> values = random_values(300, 9);
      values[290] = bad;
      Rows out(encoding, 1, 300);
      CHECK_FALSE(
          quantise_rows(encoding, values.data(), 1, 300, out.codes.data(), out.scales.data()));
    }
  }
  std::vector<float> wide(128, 0.0f);
  wide[5] = 1e6f;  // a 15th of it is more than f16 holds
  Rows out(Encoding::int4, 1, 128);
  CHECK_FALSE(
      quantise_rows(Encoding::int4, wide.data(), 1, 128, out.codes.data(), out.scales.data()));
}
