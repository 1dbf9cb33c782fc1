// GPTQ, as AutoGPTQ and GPTQModel write it: of a matrix [n, k]
//   qweight I32 [k / 8, n]           eight codes of a column, the first in the lowest nibble
//   qzeros  I32 [k / 128, n / 8]     eight zero points of a row, the first in the lowest nibble; less
//                                    one in the first version of the format
//   scales  F16 [k / 128, n]
//   g_idx   I32 [k]                  the group of each weight of a row; here they must be in order
#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/weights/encoding.hpp"
#include "core/weights/quantised_format.hpp"

namespace sluice {
namespace {

constexpr std::array<std::uint32_t, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};
constexpr std::array<std::string_view, 4> kGptqParts{"qweight", "qzeros", "scales", "g_idx"};

// Nibbles in order, put into kNibbleOrder: the even ones below, the odd ones above.
constexpr std::uint32_t reordered(std::uint32_t word) {
  const auto every_other = [](std::uint32_t x) {
    x &= 0x0F0F0F0Fu;
    x = (x | x >> 4) & 0x00FF00FFu;
    return (x | x >> 8) & 0x0000FFFFu;
  };
  return every_other(word) | every_other(word >> 4) << 16;
}
static_assert(reordered(0x76543210u) == 0x75316420u);

class GptqFormat final : public IQuantisedFormat {
 public:
  // What is added to zero points as they are stored. One that is stored as 15 becomes 16, not 0.
  explicit GptqFormat(std::uint32_t added_to_zeros) : added_to_zeros_(added_to_zeros) {}

  Encoding encoding() const override { return Encoding::int4; }
  std::span<const std::string_view> parts() const override { return kGptqParts; }
  bool stores(const Checkpoint& checkpoint, const TensorSpec& matrix) const override {
    return has_any_part(checkpoint, matrix, kGptqParts);
  }
  void check(const Checkpoint& checkpoint, const TensorSpec& matrix) const override {
    if (matrix.shape[0] % kInWord != 0 || matrix.shape[1] % kInWord != 0)
      throw InputError("{}: {} is [{}, {}]; in GPTQ both are multiples of {}",
                       checkpoint.describe(), matrix.name, matrix.shape[0], matrix.shape[1],
                       kInWord);
    parts_of(checkpoint, matrix);
  }
  void read(const Checkpoint& checkpoint, const TensorSpec& matrix, std::uint64_t first,
            std::uint64_t rows, std::byte* codes, std::byte* scales) const override {
    const Parts parts = parts_of(checkpoint, matrix);
    check_groups(checkpoint, matrix, parts.groups);
    read_codes(parts.codes, matrix, first, rows, codes);
    read_group_scales(checkpoint, matrix, {parts.scales, parts.zeros, kInOrder, added_to_zeros_},
                      first, rows, scales);
    forget_if_last(checkpoint, matrix, first + rows, kGptqParts);
  }

 private:
  struct Parts {
    RawTensor codes, zeros, scales, groups;
  };

  static Parts parts_of(const Checkpoint& checkpoint, const TensorSpec& matrix) {
    const std::uint64_t n = matrix.shape[0], k = matrix.shape[1];
    const std::uint64_t groups = (k + kGroupWeights - 1) / kGroupWeights;
    return {part_of(checkpoint, matrix, kGptqParts[0], kWords, {k / kInWord, n}),
            part_of(checkpoint, matrix, kGptqParts[1], kWords, {groups, n / kInWord}),
            part_of(checkpoint, matrix, kGptqParts[2], kHalves, {groups, n}),
            part_of(checkpoint, matrix, kGptqParts[3], kWords, {k})};
  }

  static void check_groups(const Checkpoint& checkpoint, const TensorSpec& matrix,
                           const RawTensor& groups) {
    for (std::uint64_t i = 0; i < matrix.shape[1]; ++i) {
      const std::uint32_t group = word_at(groups.data, i);
      if (group == i / kGroupWeights) continue;
      const std::string name = module_of(matrix) + "g_idx";
      throw InputError(
          "{}: tensor {} puts weight {} into group {}, not {}: groups out of order (desc_act, "
          "\"act-order\") are not supported, a checkpoint quantised with desc_act false is needed",
          checkpoint.file_of(name).path().string(), name, i, static_cast<std::int32_t>(group),
          i / kGroupWeights);
    }
  }

  // A line of the cache of each row at a time, out of as many rows of the file.
  static void read_codes(const RawTensor& from, const TensorSpec& matrix, std::uint64_t first,
                         std::uint64_t rows, std::byte* to) {
    constexpr std::uint64_t kWordsAtOnce = 16;
    const std::uint64_t n = matrix.shape[0], words = matrix.shape[1] / kInWord;
    const std::uint64_t row_words =
        code_row_bytes(Encoding::int4, matrix.shape[1]) / sizeof(std::uint32_t);
    for (std::uint64_t begin = 0; begin < row_words; begin += kWordsAtOnce) {
      const std::uint64_t end = std::min(begin + kWordsAtOnce, row_words);
      for (std::uint64_t row = 0; row < rows; ++row) {
        for (std::uint64_t w = begin; w < end; ++w) {
          const std::uint32_t word =
              w < words ? reordered(word_at(from.data, w * n + first + row)) : 0;
          std::memcpy(to + (row * row_words + w) * sizeof(word), &word, sizeof(word));
        }
      }
    }
  }

  std::uint32_t added_to_zeros_;
};

}  // namespace

std::unique_ptr<IQuantisedFormat> make_gptq_format(std::uint32_t added_to_zeros) {
  return std::make_unique<GptqFormat>(added_to_zeros);
}

}  // namespace sluice
