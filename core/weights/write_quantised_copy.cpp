#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/weights/mapped_output.hpp"
#include "core/weights/pack.hpp"
#include "core/weights/quantised_copy_layout.hpp"

namespace sluice {
namespace {

// Quantised at a time, so that what is hashed is still in memory.
constexpr std::uint64_t kWeightsAtOnce = 1ull << 28;

// Where a matrix lies in the data. All codes come first, then the checksums, then the scales: each
// begins at a multiple of what its elements need.
struct FilePlace {
  const TensorSpec* matrix = nullptr;
  CopyShapes shapes;
  std::uint64_t codes = 0, checksums = 0, scales = 0;
};

struct CopyLayout {
  std::vector<FilePlace> places;
  std::uint64_t bytes = 0;
};

CopyLayout copy_layout(const ModelPlan& plan, Encoding encoding) {
  CopyLayout layout;
  for (const TensorSpec* matrix : matrices_of(plan))
    layout.places.push_back({matrix, CopyShapes(*matrix, encoding)});
  const auto put = [&](std::uint64_t FilePlace::*where, const auto& size) {
    for (FilePlace& place : layout.places) {
      place.*where = layout.bytes;
      layout.bytes += size(place.shapes);
    }
  };
  put(&FilePlace::codes, [](const CopyShapes& s) { return s.rows * s.code_bytes; });
  put(&FilePlace::checksums, [](const CopyShapes& s) { return s.blocks * sizeof(std::uint64_t); });
  put(&FilePlace::scales, [](const CopyShapes& s) { return s.rows * s.scale_bytes; });
  return layout;
}

// Of the same length whatever the checksum. Padded, so that codes lie as in a slab.
std::string header_of(const CopyLayout& layout, Encoding encoding, const std::string& fingerprint,
                      const std::string& calibration, const std::string& checksum) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{kVersionKey, kCopyVersion},
                            {kEncodingKey, name_of(encoding)},
                            {kSourceKey, fingerprint},
                            {kChecksumKey, checksum}};
  if (!calibration.empty()) header["__metadata__"][kCalibrationKey] = calibration;
  const auto add = [&](const FilePlace& place, std::string_view part, std::string_view type,
                       const std::vector<std::uint64_t>& shape, std::uint64_t begin,
                       std::uint64_t bytes) {
    header[place.matrix->name + std::string(part)] = {
        {"dtype", type}, {"shape", shape}, {"data_offsets", {begin, begin + bytes}}};
  };
  for (const FilePlace& place : layout.places) {
    const CopyShapes& s = place.shapes;
    add(place, kCodes, "U8", s.codes, place.codes, s.rows * s.code_bytes);
    add(place, kScales, s.scale_type, s.scales, place.scales, s.rows * s.scale_bytes);
    add(place, kChecksums, "U64", s.checksums, place.checksums, s.blocks * sizeof(std::uint64_t));
  }
  std::string text = header.dump();
  const std::size_t length = sizeof(std::uint64_t) + text.size();
  text.append((kRowAlignment - length % kRowAlignment) % kRowAlignment, ' ');
  return text;
}

void write_checksums(std::span<const FilePlace> places, std::byte* data) {
  parallel_for(places.size(), [&](std::size_t i) {
    const FilePlace& place = places[i];
    for (std::uint64_t block = 0; block < place.shapes.blocks; ++block) {
      const std::uint64_t checksum =
          place.shapes.checksum(block, data + place.codes, data + place.scales);
      std::memcpy(data + place.checksums + block * sizeof(checksum), &checksum, sizeof(checksum));
    }
  });
}

}  // namespace

void write_quantised_copy(const ModelPlan& plan, const ITensorSource& source, Encoding encoding,
                          const std::filesystem::path& path, const std::string& calibration,
                          const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const CopyLayout layout = copy_layout(plan, encoding);
  const std::string fingerprint = source_fingerprint(plan, source);
  const std::uint64_t header_bytes =
      header_of(layout, encoding, fingerprint, calibration, ChecksumOfAll().text()).size();
  MappedOutput file(path, sizeof(header_bytes) + header_bytes + layout.bytes);
  std::byte* const data = file.data().data() + sizeof(header_bytes) + header_bytes;

  std::uint64_t done = 0;
  for (std::size_t first = 0, last; first < layout.places.size(); first = last) {
    std::vector<MatrixToFill> batch;
    std::uint64_t weights = 0, bytes = 0;
    for (last = first; last < layout.places.size() && weights < kWeightsAtOnce; ++last) {
      const FilePlace& place = layout.places[last];
      batch.push_back({place.matrix, encoding, data + place.codes, data + place.scales});
      weights += place.matrix->elements();
    }
    pack_matrices(batch, source, 0, [&](std::uint64_t at, std::uint64_t of_batch) {
      bytes = of_batch;
      if (progress) progress(done + at, layout.bytes);
    });
    done += bytes;
    write_checksums(std::span(layout.places).subspan(first, last - first), data);
  }

  ChecksumOfAll checksum;
  for (const FilePlace& place : layout.places)
    checksum.add({data + place.checksums, place.shapes.blocks * sizeof(std::uint64_t)});
  const std::string header = header_of(layout, encoding, fingerprint, calibration, checksum.text());
  if (header.size() != header_bytes)
    throw Error("{}: the header changed its length", path.string());
  std::memcpy(file.data().data(), &header_bytes, sizeof(header_bytes));
  std::memcpy(file.data().data() + sizeof(header_bytes), header.data(), header.size());
  file.finish();
  if (progress) progress(layout.bytes, layout.bytes);
}

}  // namespace sluice
