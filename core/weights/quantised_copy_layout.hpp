// What writing and reading a quantised copy share.
#pragma once
#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/weights/encoding.hpp"
#include "core/weights/hash.hpp"
#include "core/weights/quantised_copy.hpp"

namespace sluice {

// Of the layout, and of quantise_rows(): goes up when either gives other bytes.
inline constexpr std::string_view kCopyVersion = "1";
inline constexpr const char *kVersionKey = "sluice_version", *kEncodingKey = "sluice_encoding",
                            *kSourceKey = "sluice_source", *kChecksumKey = "sluice_checksum",
                            *kCalibrationKey = "sluice_calibration";  // where there was one
inline constexpr std::string_view kCodes = ".codes", kScales = ".scales", kChecksums = ".checksums";

inline constexpr std::uint64_t kChecksumRows = 16;

// Of one matrix, in a file of `encoding`.
struct CopyShapes {
  CopyShapes(const TensorSpec& matrix, Encoding encoding)
      : rows(matrix.shape[0]),
        code_bytes(code_row_bytes(encoding, matrix.shape[1])),
        scale_bytes(scale_row_bytes(encoding, matrix.shape[1])),
        blocks((rows + kChecksumRows - 1) / kChecksumRows),
        scale_type(encoding == Encoding::int4 ? "F16" : "F32"),
        codes{rows, code_bytes},
        scales{rows},
        checksums{blocks} {
    if (encoding == Encoding::int4) scales = {rows, scale_bytes / sizeof(GroupScale), 2};
  }
  std::uint64_t rows, code_bytes, scale_bytes, blocks;
  std::string_view scale_type;
  std::vector<std::uint64_t> codes, scales, checksums;

  // Of block `i`, given the matrix's codes and scales.
  std::uint64_t checksum(std::uint64_t i, const std::byte* codes_at,
                         const std::byte* scales_at) const {
    const std::uint64_t first = i * kChecksumRows, n = std::min(kChecksumRows, rows - first);
    return hash_bulk({scales_at + first * scale_bytes, n * scale_bytes},
                     hash_bulk({codes_at + first * code_bytes, n * code_bytes}, 0));
  }
};

// Each matrix once, in the plan's order.
inline std::vector<const TensorSpec*> matrices_of(const ModelPlan& plan) {
  std::vector<const TensorSpec*> matrices;
  std::unordered_set<std::string_view> seen;
  for (const UnitSpec& unit : plan.units)
    for (const TensorSpec& tensor : unit.tensors)
      if (tensor.is_matrix && seen.insert(tensor.name).second) matrices.push_back(&tensor);
  return matrices;
}

// Of the blocks' checksums of all matrices, in the plan's order.
class ChecksumOfAll {
 public:
  void add(std::span<const std::byte> checksums) { hash_ = hash_bulk(checksums, hash_); }
  std::string text() const;

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace sluice
