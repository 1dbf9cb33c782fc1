#include "core/weights/safetensors.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const InputFile file(path);
  const std::uint64_t bytes = file.bytes();
  if (bytes < kLengthBytes) {
    throw InputError("{}: {} bytes, too short for the length of a header: is the file complete?",
                     path.string(), bytes);
  }
  void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapping == MAP_FAILED) {
    throw Error("{}: mapping {} bytes failed: {}", path.string(), bytes, system_message(errno));
  }
  mapping_ = static_cast<const std::byte*>(mapping);
  mapped_bytes_ = bytes;
  try {
    std::uint64_t length = 0;
    std::memcpy(&length, mapping_, kLengthBytes);
    if (length > bytes - kLengthBytes || length > kLongestHeader) {
      throw InputError(
          "{}: the header's length is given as {} bytes, the file has {} and the "
          "format allows {}: is this a safetensors file, and complete?",
          path.string(), length, bytes - kLengthBytes, kLongestHeader);
    }
    data_offset_ = kLengthBytes + length;
    header_ = parse_safetensors_header(header_text(), bytes - data_offset_, path.string());
  } catch (...) {
    ::munmap(mapping, bytes);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_) ::munmap(const_cast<std::byte*>(mapping_), mapped_bytes_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      header_(std::move(other.header_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_offset_(std::exchange(other.data_offset_, 0)) {}

std::string_view SafetensorsFile::header_text() const {
  return {reinterpret_cast<const char*>(mapping_) + kLengthBytes, data_offset_ - kLengthBytes};
}

StoredTensor SafetensorsFile::tensor(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end()) {
    if (const auto other = header_.unsupported.find(name); other != header_.unsupported.end()) {
      throw InputError("{}: tensor {} has the type {}, F32, BF16 or F16 is needed", path_.string(),
                       name, other->second.type);
    }
    throw InputError("{}: no tensor {}", path_.string(), name);
  }
  const SafetensorsHeader::Entry& entry = found->second;
  return {entry.dtype, entry.shape, data().subspan(entry.begin, entry.end - entry.begin)};
}

RawTensor SafetensorsFile::raw(const std::string& name) const {
  const auto other = header_.unsupported.find(name);
  if (other == header_.unsupported.end()) {
    StoredTensor stored = tensor(name);
    return {safetensors_name(stored.dtype), std::move(stored.shape), stored.data};
  }
  const SafetensorsHeader::OtherEntry& entry = other->second;
  return {entry.type, entry.shape, data().subspan(entry.begin, entry.end - entry.begin)};
}

void SafetensorsFile::forget(std::span<const std::byte> data) const noexcept {
  // Outwards to whole pages: a neighbour that is being read comes back from the page cache.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(data.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(data.data()) + data.size();
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace sluice
