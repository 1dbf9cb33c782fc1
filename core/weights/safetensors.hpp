// One .safetensors file, memory-mapped: an 8-byte little-endian header length, a JSON header, data.
// Format: https://huggingface.co/docs/safetensors
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"

namespace sluice {

// What the format calls it: "BF16".
constexpr std::string_view safetensors_name(DType type) {
  return type == DType::f32 ? "F32" : type == DType::bf16 ? "BF16" : "F16";
}

struct StoredTensor {
  DType dtype = DType::f32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;  // into the mapping
};

// One of any type, as the file names it: "I32".
struct RawTensor {
  std::string_view type;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;
};

// What a file holds. Tensors of other types than f32, bf16 and f16 are in `unsupported` and are an
// error only when asked for as weights.
struct SafetensorsHeader {
  struct Entry {
    DType dtype = DType::f32;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes, relative to the data
  };
  struct OtherEntry {
    std::string type;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, OtherEntry> unsupported;
  std::map<std::string, std::string> metadata;
};

// Parses `header`, the JSON between the length and `data_bytes` bytes of data; `file` names it in
// errors. Throws InputError for anything that does not hold: not JSON, a name given twice, offsets
// out of range, overlapping, leaving gaps, or not matching shape and type.
SafetensorsHeader parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                                           const std::string& file);

class SafetensorsFile {
 public:
  // Maps the file and parses its header. Throws InputError.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // The JSON, for fingerprints.
  std::string_view header_text() const;
  std::uint64_t bytes() const { return mapped_bytes_; }
  std::span<const std::byte> data() const {
    return {mapping_ + data_offset_, mapped_bytes_ - data_offset_};
  }
  // Throws InputError when there is none of that name, or its type is not supported.
  StoredTensor tensor(const std::string& name) const;
  // Throws InputError when there is none of that name. Sizes are checked of every type that the
  // format knows.
  RawTensor raw(const std::string& name) const;
  // The pages of these bytes may leave memory; they come back when read again.
  void forget(std::span<const std::byte> data) const noexcept;

 private:
  std::filesystem::path path_;
  SafetensorsHeader header_;
  const std::byte* mapping_ = nullptr;
  std::uint64_t mapped_bytes_ = 0, data_offset_ = 0;
};

}  // namespace sluice
