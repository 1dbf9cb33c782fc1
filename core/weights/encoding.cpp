#include "core/weights/encoding.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/float16.hpp"
#include "core/weights/convert.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kWordWeights = kNibbleOrder.size();

// To the nearest whole number, ties to even, of magnitudes below 2^22: what is added leaves no place
// for a fraction. Unlike std::nearbyint it is one addition, which compilers turn into vectors.
float to_whole(float x) {
  constexpr float kNoFraction = 0x1.8p23f;
  return (x + kNoFraction) - kNoFraction;
}

bool quantise_int8(std::span<const float> row, std::int8_t* codes, float& scale) {
  float most = 0;
  bool finite = true;
  for (const float value : row) {
    finite &= std::isfinite(value);
    most = std::max(most, std::abs(value));
  }
  scale = most / static_cast<float>(kInt8Most);
  if (!finite) return false;
  // Of a row of zeros, or of values so small that a 127th of them is none.
  const float divisor = scale == 0 ? 1.0f : scale;
  for (std::size_t i = 0; i < row.size(); ++i)
    codes[i] = static_cast<std::int8_t>(std::clamp(
        to_whole(row[i] / divisor), -static_cast<float>(kInt8Most), static_cast<float>(kInt8Most)));
  return true;
}

// A group's scale and zero point as numbers.
struct Range4 {
  float scale = 1, zero = 0;

  float code(float value) const {
    return std::clamp(to_whole(value / scale) + zero, 0.0f, static_cast<float>(kInt4Most));
  }
};

// Zero is always in the range, so that it stays zero.
Range4 range_of_group(float low, float high) {
  Range4 range;
  const float scale = f16_to_f32(f32_to_f16((high - low) / static_cast<float>(kInt4Most)));
  if (scale > 0) range.scale = scale;
  range.zero = std::clamp(to_whole(-low / range.scale), 0.0f, static_cast<float>(kInt4Most));
  return range;
}

bool quantise_group(std::span<const float> group, std::uint8_t* codes, GroupScale& scale) {
  constexpr float kLargestF16 = 65504;
  float low = 0, high = 0;
  bool finite = true;
  for (const float value : group) {
    finite &= std::isfinite(value);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (!finite || high - low > kLargestF16 * static_cast<float>(kInt4Most)) return false;

  const Range4 range = range_of_group(low, high);
  scale = {f32_to_f16(range.scale), f32_to_f16(range.zero)};
  for (std::size_t i = 0; i < group.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(range.code(group[i]));
  return true;
}

// `codes`: one to a byte.
void pack_words(const std::uint8_t* codes, std::size_t words, std::byte* to) {
  for (std::size_t w = 0; w < words; ++w) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < kWordWeights; ++i)
      word |= std::uint32_t{codes[w * kWordWeights + kNibbleOrder[i]]} << 4 * i;
    std::memcpy(to + w * sizeof(word), &word, sizeof(word));
  }
}

bool quantise_int4(std::span<const float> row, std::byte* codes, GroupScale* scales) {
  std::array<std::uint8_t, kGroupWeights> group_codes;
  const std::uint64_t words = code_row_bytes(Encoding::int4, row.size()) / sizeof(std::uint32_t);
  for (std::uint64_t first = 0, word = 0; word < words; first += kGroupWeights) {
    group_codes = {};
    if (first < row.size() &&
        !quantise_group(row.subspan(first, std::min(kGroupWeights, row.size() - first)),
                        group_codes.data(), scales[first / kGroupWeights]))
      return false;
    const std::uint64_t of_group = std::min(kGroupWeights / kWordWeights, words - word);
    pack_words(group_codes.data(), of_group, codes + word * sizeof(std::uint32_t));
    word += of_group;
  }
  return true;
}

void dequantise_int8(const std::byte* codes, float scale, std::span<float> to) {
  const auto* from = reinterpret_cast<const std::int8_t*>(codes);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = scale * static_cast<float>(from[i]);
}

void dequantise_int4(const std::byte* codes, const GroupScale* scales, std::span<float> to) {
  for (std::size_t first = 0; first < to.size(); first += kWordWeights) {
    const GroupScale group = scales[first / kGroupWeights];
    const float scale = f16_to_f32(group.scale), zero = f16_to_f32(group.zero);
    std::uint32_t word;
    std::memcpy(&word, codes + first / 2, sizeof(word));
    for (std::size_t i = 0; i < kWordWeights; ++i) {
      const std::size_t at = first + kNibbleOrder[i];
      const auto code = static_cast<float>(word >> 4 * i & 15u);
      if (at < to.size()) to[at] = scale * (code - zero);
    }
  }
}

}  // namespace

void pack_int4(std::span<const std::uint8_t> codes, std::byte* to) {
  const std::uint64_t words = code_row_bytes(Encoding::int4, codes.size()) / sizeof(std::uint32_t);
  std::vector<std::uint8_t> padded(words * kWordWeights);
  std::ranges::copy(codes, padded.begin());
  pack_words(padded.data(), words, to);
}

bool quantise_rows(Encoding encoding, const float* values, std::uint64_t rows, std::uint64_t k,
                   std::byte* codes, std::byte* scales) {
  const std::uint64_t code_bytes = code_row_bytes(encoding, k);
  const std::uint64_t scale_bytes = scale_row_bytes(encoding, k);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::span<const float> from(values + row * k, k);
    std::byte* const to = codes + row * code_bytes;
    std::byte* const scale = scales + row * scale_bytes;
    if (encoding == Encoding::int4) {
      if (!quantise_int4(from, to, reinterpret_cast<GroupScale*>(scale))) return false;
      continue;
    }
    std::memset(to + k, 0, code_bytes - k);
    if (!quantise_int8(from, reinterpret_cast<std::int8_t*>(to), *reinterpret_cast<float*>(scale)))
      return false;
  }
  return true;
}

void dequantise_rows(Encoding encoding, const std::byte* codes, const std::byte* scales,
                     std::uint64_t rows, std::uint64_t k, DType type, std::byte* to) {
  std::array<float, kGroupWeights> part;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::byte* const from = codes + row * code_row_bytes(encoding, k);
    const std::byte* const scale = scales + row * scale_row_bytes(encoding, k);
    for (std::uint64_t first = 0; first < k; first += kGroupWeights) {
      const std::span<float> values(part.data(), std::min(kGroupWeights, k - first));
      if (encoding == Encoding::int4)
        dequantise_int4(from + first / 2,
                        reinterpret_cast<const GroupScale*>(scale) + first / kGroupWeights, values);
      else
        dequantise_int8(from + first, *reinterpret_cast<const float*>(scale), values);
      convert(DType::f32, reinterpret_cast<const std::byte*>(part.data()), type,
              to + (row * k + first) * size_of(type), values.size());
    }
  }
}

}  // namespace sluice
