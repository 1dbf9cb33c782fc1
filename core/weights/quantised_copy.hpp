// A quantised copy of a checkpoint's matrices in a file beside it, so that loading reads instead of
// quantising: a safetensors file with, of each matrix NAME of `rows` rows,
//   NAME.codes      U8 [rows, bytes of a row]         as core/weights/encoding.hpp lays them out
//   NAME.scales     F32 [rows] of int8, F16 [rows, groups, {scale, zero}] of int4
//   NAME.checksums  U64, of each 16 rows of codes and their scales
// and in its metadata the version of this layout and of the arithmetic, the encoding, a fingerprint of
// the source, a checksum of the checksums, and how the matrices were calibrated if they were.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/weights/safetensors.hpp"
#include "core/weights/tensor_source.hpp"

namespace sluice {

// "sluice-int8.safetensors" in `directory`.
std::filesystem::path quantised_copy_path(const std::filesystem::path& directory,
                                          Encoding encoding);

// Of all matrices: their names, shapes and a sample of the weights of each. Changes when the model is
// trained on or replaced; may not when single weights are changed by hand.
std::string source_fingerprint(const ModelPlan& plan, const ITensorSource& source);

// Quantises all matrices of `plan`, with all cores, or takes them from `source` where it has them in
// that encoding; `calibration` says how it came by them, in one line, or nothing. Into a file that
// appears when it is whole, in the place of one that is there. `progress` is told the bytes written so
// far and their total, on the caller's thread. Throws InputError for a matrix that cannot be
// quantised, Error when writing fails.
void write_quantised_copy(const ModelPlan& plan, const ITensorSource& source, Encoding encoding,
                          const std::filesystem::path& path, const std::string& calibration,
                          const std::function<void(std::uint64_t, std::uint64_t)>& progress);

// Such a file, opened. Whatever is wrong with it is an InputError that names it and says how to
// replace it.
class QuantisedCopyFile {
 public:
  // Reads the header.
  QuantisedCopyFile(const std::filesystem::path& path, Encoding encoding);

  Encoding encoding() const { return encoding_; }
  const std::filesystem::path& path() const { return file_.path(); }
  // As it was written; empty: weights were rounded to nearest.
  std::string calibration() const;
  // Whether it was made from this source by the present arithmetic.
  bool is_of(const std::string& fingerprint) const;
  // That it has the codes, scales and checksums of all matrices and nothing else, and that the
  // checksums are as they were written.
  void check(const ModelPlan& plan) const;
  // As ITensorSource::read_quantised(), of a file that check() lets pass; what is read is compared
  // with its checksums.
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t rows, std::byte* codes,
            std::byte* scales) const;

 private:
  struct Parts {
    RawTensor codes, scales, checksums;
  };
  Parts parts_of(const TensorSpec& tensor) const;

  Encoding encoding_;
  SafetensorsFile file_;
};

// A source whose matrices are there in one more encoding.
class QuantisedCopy final : public ITensorSource {
 public:
  // `copy` passed its checks and is of `source`.
  QuantisedCopy(std::unique_ptr<ITensorSource> source, QuantisedCopyFile copy)
      : source_(std::move(source)), copy_(std::move(copy)) {}

  DType stored_type(const TensorSpec& tensor) const override {
    return source_->stored_type(tensor);
  }
  bool has(const std::string& name) const override { return source_->has(name); }
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override {
    source_->read(tensor, first, n, to);
  }
  bool is_quantised(const TensorSpec& tensor, Encoding encoding) const override {
    return is_copied(tensor, encoding) || source_->is_quantised(tensor, encoding);
  }
  std::optional<Encoding> quantised_as(const TensorSpec& tensor) const override {
    return source_->quantised_as(tensor);
  }
  void read_quantised(const TensorSpec& tensor, Encoding encoding, std::uint64_t first,
                      std::uint64_t rows, std::byte* codes, std::byte* scales) const override {
    if (is_copied(tensor, encoding)) return copy_.read(tensor, first, rows, codes, scales);
    source_->read_quantised(tensor, encoding, first, rows, codes, scales);
  }
  std::string describe() const override {
    const std::string calibration = copy_.calibration();
    return source_->describe() + (calibration.empty() ? "" : ", " + calibration);
  }

 private:
  bool is_copied(const TensorSpec& tensor, Encoding encoding) const {
    return tensor.is_matrix && encoding == copy_.encoding();
  }

  std::unique_ptr<ITensorSource> source_;
  QuantisedCopyFile copy_;
};

}  // namespace sluice
