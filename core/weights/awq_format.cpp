// AWQ, version "gemm", as AutoAWQ writes it: of a matrix [n, k]
//   qweight I32 [k, n / 8]           eight codes of a row, nibble i is column kNibbleOrder[i] of them
//   qzeros  I32 [k / 128, n / 8]     zero points, likewise
//   scales  F16 [k / 128, n]
#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/weights/encoding.hpp"
#include "core/weights/quantised_format.hpp"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 3> kAwqParts{"qweight", "qzeros", "scales"};

// The nibble of each of eight columns.
constexpr std::array<std::uint32_t, kInWord> nibbles_of_columns() {
  std::array<std::uint32_t, kInWord> nibbles{};
  for (std::uint32_t i = 0; i < kInWord; ++i) nibbles[kNibbleOrder[i]] = i;
  return nibbles;
}
constexpr std::array kNibbleOf = nibbles_of_columns();

class AwqFormat final : public IQuantisedFormat {
 public:
  Encoding encoding() const override { return Encoding::int4; }
  std::span<const std::string_view> parts() const override { return kAwqParts; }
  bool stores(const Checkpoint& checkpoint, const TensorSpec& matrix) const override {
    return has_any_part(checkpoint, matrix, kAwqParts);
  }
  void check(const Checkpoint& checkpoint, const TensorSpec& matrix) const override {
    if (matrix.shape[0] % kInWord != 0 || matrix.shape[1] % kGroupWeights != 0)
      throw InputError(
          "{}: {} is [{}, {}]; in AWQ the first is a multiple of {} and the second of {}",
          checkpoint.describe(), matrix.name, matrix.shape[0], matrix.shape[1], kInWord,
          kGroupWeights);
    parts_of(checkpoint, matrix);
  }
  void read(const Checkpoint& checkpoint, const TensorSpec& matrix, std::uint64_t first,
            std::uint64_t rows, std::byte* codes, std::byte* scales) const override {
    const Parts parts = parts_of(checkpoint, matrix);
    read_codes(parts.codes, matrix, first, rows, codes);
    read_group_scales(checkpoint, matrix, {parts.scales, parts.zeros, kNibbleOf}, first, rows,
                      scales);
    forget_if_last(checkpoint, matrix, first + rows, kAwqParts);
  }

 private:
  struct Parts {
    RawTensor codes, zeros, scales;
  };

  static Parts parts_of(const Checkpoint& checkpoint, const TensorSpec& matrix) {
    const std::uint64_t n = matrix.shape[0], k = matrix.shape[1], groups = k / kGroupWeights;
    return {part_of(checkpoint, matrix, kAwqParts[0], kWords, {k, n / kInWord}),
            part_of(checkpoint, matrix, kAwqParts[1], kWords, {groups, n / kInWord}),
            part_of(checkpoint, matrix, kAwqParts[2], kHalves, {groups, n})};
  }

  // Eight by eight: eight columns of the file's word and eight of its rows are a word of each of
  // eight rows here. A line of the cache of each row at a time.
  static void read_codes(const RawTensor& from, const TensorSpec& matrix, std::uint64_t first,
                         std::uint64_t rows, std::byte* to) {
    constexpr std::uint64_t kWordsAtOnce = 16;
    const std::uint64_t row_words = matrix.shape[1] / kInWord;  // groups are whole: no padding
    const std::uint64_t file_words = matrix.shape[0] / kInWord;
    const std::uint64_t end_row = first + rows;
    for (std::uint64_t begin = 0; begin < row_words; begin += kWordsAtOnce) {
      const std::uint64_t end = std::min(begin + kWordsAtOnce, row_words);
      for (std::uint64_t column = first / kInWord * kInWord; column < end_row; column += kInWord) {
        for (std::uint64_t w = begin; w < end; ++w) {
          std::array<std::uint32_t, kInWord> in;
          for (std::uint64_t i = 0; i < kInWord; ++i)
            in[i] =
                word_at(from.data, (w * kInWord + kNibbleOrder[i]) * file_words + column / kInWord);
          for (std::uint64_t c = 0; c < kInWord; ++c) {
            if (column + c < first || column + c >= end_row) continue;
            std::uint32_t word = 0;
            for (std::uint64_t i = 0; i < kInWord; ++i)
              word |= (in[i] >> 4 * kNibbleOf[c] & 15u) << 4 * i;
            std::memcpy(to + ((column + c - first) * row_words + w) * sizeof(word), &word,
                        sizeof(word));
          }
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<IQuantisedFormat> make_awq_format() { return std::make_unique<AwqFormat>(); }

}  // namespace sluice
