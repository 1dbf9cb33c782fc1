#include "core/weights/quantised_copy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/weights/quantised_copy_layout.hpp"

namespace sluice {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, Encoding encoding,
                         const std::string& reason) {
  const std::filesystem::path model = path.has_parent_path() ? path.parent_path() : ".";
  throw InputError("{}; remove {}, or run `sluice quantize {} --to {}` again", reason,
                   path.string(), model.string(), name_of(encoding));
}

SafetensorsFile open_file(const std::filesystem::path& path, Encoding encoding) {
  try {
    return SafetensorsFile(path);
  } catch (const InputError& error) {
    refuse(path, encoding, error.what());
  }
}

}  // namespace

std::filesystem::path quantised_copy_path(const std::filesystem::path& directory,
                                          Encoding encoding) {
  return directory / fmt::format("sluice-{}.safetensors", name_of(encoding));
}

std::string ChecksumOfAll::text() const { return fmt::format("{:016x}", hash_); }

std::string source_fingerprint(const ModelPlan& plan, const ITensorSource& source) {
  constexpr std::uint64_t kSamples = 4, kSampleWeights = 64;
  const std::vector<const TensorSpec*> matrices = matrices_of(plan);
  std::vector<std::uint64_t> hashes(matrices.size());
  parallel_for(matrices.size(), [&](std::size_t i) {
    const TensorSpec& matrix = *matrices[i];
    const std::uint64_t size = size_of(source.stored_type(matrix));
    const std::uint64_t n = std::min(kSampleWeights, matrix.elements());
    std::uint64_t hash = hash_bytes(std::as_bytes(std::span(matrix.name)), size);
    hash = hash_bytes(std::as_bytes(std::span(matrix.shape)), hash);
    std::vector<std::byte> sample(n * size);
    for (std::uint64_t s = 0; s < kSamples; ++s) {  // the first and the last weights among them
      source.read(matrix, (matrix.elements() - n) * s / (kSamples - 1), n, sample.data());
      hash = hash_bytes(sample, hash);
    }
    hashes[i] = hash;
  });
  return fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(hashes)), 0));
}

QuantisedCopyFile::QuantisedCopyFile(const std::filesystem::path& path, Encoding encoding)
    : encoding_(encoding), file_(open_file(path, encoding)) {
  const std::map<std::string, std::string>& metadata = file_.header().metadata;
  for (const char* key : {kVersionKey, kEncodingKey, kSourceKey, kChecksumKey})
    if (!metadata.contains(key))
      refuse(path, encoding, fmt::format("{}: its metadata have no {}", path.string(), key));
  if (metadata.at(kEncodingKey) != name_of(encoding))
    refuse(path, encoding,
           fmt::format("{}: is in {:.20}", path.string(), metadata.at(kEncodingKey)));
}

std::string QuantisedCopyFile::calibration() const {
  const std::map<std::string, std::string>& metadata = file_.header().metadata;
  const auto found = metadata.find(kCalibrationKey);
  return found == metadata.end() ? "" : found->second;
}

bool QuantisedCopyFile::is_of(const std::string& fingerprint) const {
  const std::map<std::string, std::string>& metadata = file_.header().metadata;
  return metadata.at(kVersionKey) == kCopyVersion && metadata.at(kSourceKey) == fingerprint;
}

QuantisedCopyFile::Parts QuantisedCopyFile::parts_of(const TensorSpec& tensor) const {
  const CopyShapes shapes(tensor, encoding_);
  const auto part = [&](std::string_view suffix, std::string_view type,
                        const std::vector<std::uint64_t>& shape) {
    const std::string name = tensor.name + std::string(suffix);
    const SafetensorsHeader& header = file_.header();
    if (!header.tensors.contains(name) && !header.unsupported.contains(name))
      refuse(path(), encoding_, fmt::format("{}: has no tensor {}", path().string(), name));
    RawTensor raw = file_.raw(name);
    if (raw.type != type || raw.shape != shape)
      refuse(path(), encoding_,
             fmt::format("{}: tensor {} is {} [{}], {} [{}] is needed", path().string(), name,
                         raw.type, fmt::join(raw.shape, ", "), type, fmt::join(shape, ", ")));
    return raw;
  };
  return {part(kCodes, "U8", shapes.codes), part(kScales, shapes.scale_type, shapes.scales),
          part(kChecksums, "U64", shapes.checksums)};
}

void QuantisedCopyFile::check(const ModelPlan& plan) const {
  constexpr std::size_t kParts = 3;
  const std::vector<const TensorSpec*> matrices = matrices_of(plan);
  ChecksumOfAll checksum;
  for (const TensorSpec* matrix : matrices) checksum.add(parts_of(*matrix).checksums.data);
  const SafetensorsHeader& header = file_.header();
  const std::size_t tensors = header.tensors.size() + header.unsupported.size();
  if (tensors != kParts * matrices.size())
    refuse(path(), encoding_,
           fmt::format("{}: holds {} tensors, those of {} matrices are {}", path().string(),
                       tensors, matrices.size(), kParts * matrices.size()));
  if (checksum.text() != header.metadata.at(kChecksumKey))
    refuse(path(), encoding_,
           fmt::format("{}: is damaged: the checksum of its checksums is {}, {:.20} was written",
                       path().string(), checksum.text(), header.metadata.at(kChecksumKey)));
}

void QuantisedCopyFile::read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t rows,
                             std::byte* codes, std::byte* scales) const {
  if (rows == 0) return;
  const Parts parts = parts_of(tensor);
  const CopyShapes shapes(tensor, encoding_);
  const std::uint64_t last_block = (first + rows - 1) / kChecksumRows;
  for (std::uint64_t block = first / kChecksumRows; block <= last_block; ++block) {
    std::uint64_t expected;
    std::memcpy(&expected, parts.checksums.data.data() + block * sizeof(expected),
                sizeof(expected));
    if (shapes.checksum(block, parts.codes.data.data(), parts.scales.data.data()) != expected)
      refuse(path(), encoding_,
             fmt::format("{}: is damaged: rows {} to {} of {} do not match their checksum",
                         path().string(), block * kChecksumRows,
                         std::min((block + 1) * kChecksumRows, shapes.rows) - 1, tensor.name));
  }
  const auto codes_from =
      parts.codes.data.subspan(first * shapes.code_bytes, rows * shapes.code_bytes);
  const auto scales_from =
      parts.scales.data.subspan(first * shapes.scale_bytes, rows * shapes.scale_bytes);
  std::memcpy(codes, codes_from.data(), codes_from.size());
  std::memcpy(scales, scales_from.data(), scales_from.size());
  file_.forget(codes_from);
  file_.forget(scales_from);
}

}  // namespace sluice
