// How a matrix of weights, [rows, k], is stored in the quantised encodings, and the arithmetic from
// values to codes and back.
//
// int8: a code in [-127, 127] for each weight and a scale for each row (the output channel):
//   weight = scale * code. scale = largest magnitude of the row / 127, in f32. What others have
//   quantised has the code -128, too.
// int4: a code in [0, 15] for each weight and, for each group of 128 along the row (the last may be
//   shorter), a scale and a zero point, both f16: weight = scale * (code - zero). The zero point is a
//   whole number, at most 16 in what others have quantised.
//
// Codes are rounded to nearest, ties to even. The range of a group of int4 runs from its least value,
// or zero, to its greatest, or zero. Shrinking it until the squared error is least takes a tenth off the
// weights' error and worsens the model: what is cut off are the weights that matter most (SmolLM2-135M
// over 3000 tokens: perplexity 9.13 natively, 11.24 with the full range, 11.84 with the range of least
// error, 12.03 with a symmetric one).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.hpp"
#include "sluice/unit.hpp"

namespace sluice {

inline constexpr std::uint64_t kGroupWeights = 128;
inline constexpr std::uint32_t kInt8Most = 127, kInt4Most = 15;

// Of one group of int4.
struct GroupScale {
  std::uint16_t scale = 0, zero = 0;  // f16
};
static_assert(sizeof(GroupScale) == 4);

// Codes of int4 lie eight to a little-endian word of 32 bits: nibble i, counted from the lowest, is
// weight kNibbleOrder[i] of the eight. So two neighbours lie 16 bits apart and come out of one shift
// and mask as a pair of 16-bit numbers.
inline constexpr std::array<std::uint32_t, 8> kNibbleOrder{0, 2, 4, 6, 1, 3, 5, 7};

// The code of weight i of a word's eight.
constexpr std::uint32_t code_in_word(std::uint32_t word, std::uint32_t i) {
  const std::uint32_t nibble = i % 2 * 4 + i / 2;  // the inverse of kNibbleOrder
  return word >> 4 * nibble & 15u;
}

// Each row's codes begin at a multiple of this; what a row lacks to it is zeros.
inline constexpr std::uint64_t kRowAlignment = 16;

// Bytes of one row's codes and of one row's scales.
constexpr std::uint64_t code_row_bytes(Encoding encoding, std::uint64_t k) {
  const std::uint64_t bytes = encoding == Encoding::int4 ? (k + 1) / 2 : k;
  return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}
constexpr std::uint64_t scale_row_bytes(Encoding encoding, std::uint64_t k) {
  return encoding == Encoding::int4 ? (k + kGroupWeights - 1) / kGroupWeights * sizeof(GroupScale)
                                    : sizeof(float);
}

// Writes the codes and scales of `rows` rows of finite values. False when there is a value that is
// not finite or, of int4, a range that no f16 scale covers; nothing useful was written then.
[[nodiscard]] bool quantise_rows(Encoding encoding, const float* values, std::uint64_t rows,
                                 std::uint64_t k, std::byte* codes, std::byte* scales);

// Writes a row's codes of int4, each below 16, as they are stored.
void pack_int4(std::span<const std::uint8_t> codes, std::byte* to);

// Writes [rows, k] of `type`: the product of scale and code in f32, rounded once more where the type
// is narrower.
void dequantise_rows(Encoding encoding, const std::byte* codes, const std::byte* scales,
                     std::uint64_t rows, std::uint64_t k, DType type, std::byte* to);

}  // namespace sluice
