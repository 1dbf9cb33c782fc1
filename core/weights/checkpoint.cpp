#include "core/weights/checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"
#include "core/weights/checkpoint_files.hpp"
#include "core/weights/hash.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kLargestIndex = 64ull << 20;

// Names a file beside the index and nothing else, whatever the index says.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Tensor name to file name.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const nlohmann::json parsed = load_json(path, kLargestIndex);
  const JsonNode map = JsonNode(parsed, path.string()).at("weight_map");
  map.expect_object();
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map.raw().items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (!is_plain_name(name)) {
      throw InputError("{} is {}, the name of a file in the same directory is needed",
                       map.where(tensor), shown(shard));
    }
    shards.emplace(tensor, name);
  }
  return shards;
}

// Changes when the content does, as far as a small sample of each file's data tells.
class Fingerprint {
 public:
  void add(const SafetensorsFile& file) {
    constexpr std::uint64_t kSamples = 16, kSampleBytes = 4096;
    add(std::as_bytes(std::span(file.header_text())));
    const std::span<const std::byte> data = file.data();
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      const std::uint64_t begin = data.size() / kSamples * i;
      const auto sample = data.subspan(begin, std::min(kSampleBytes, data.size() - begin));
      add(sample);
      file.forget(sample);
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  void add(std::span<const std::byte> bytes) { hash_ = hash_bytes(bytes, hash_); }
  std::uint64_t hash_ = 0;
};

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& directory) : directory_(directory) {
  if (!directory_exists(directory)) {
    throw InputError("{}: no such directory", directory.string());
  }
  const std::filesystem::path single = directory / kWeightsName, index = directory / kIndexName;
  if (path_exists(single)) {
    files_.emplace_back(single);
    for (const auto& [name, entry] : files_[0].header().tensors) where_.emplace(name, 0);
    for (const auto& [name, type] : files_[0].header().unsupported) where_.emplace(name, 0);
  } else if (path_exists(index)) {
    open_shards(index);
  } else {
    throw InputError("{}: has neither {} nor {}", directory.string(), kWeightsName, kIndexName);
  }
}

void Checkpoint::open_shards(const std::filesystem::path& index) {
  std::map<std::string, std::size_t> files;  // by name
  const std::map<std::string, std::string> shards = read_index(index);
  for (const auto& [tensor, shard] : shards) files.emplace(shard, 0);
  std::vector<std::string> missing;
  for (const auto& [name, number] : files) {
    if (!path_exists(directory_ / name)) missing.push_back(name);
  }
  if (!missing.empty()) {
    throw InputError("{}: {} of {} shards are missing: {}", directory_.string(), missing.size(),
                     files.size(), fmt::join(missing, ", "));
  }
  for (auto& [name, number] : files) {
    number = files_.size();
    files_.emplace_back(directory_ / name);
  }
  for (const auto& [tensor, shard] : shards) {
    const std::size_t number = files.at(shard);
    const SafetensorsHeader& header = files_[number].header();
    if (!header.tensors.contains(tensor) && !header.unsupported.contains(tensor)) {
      throw InputError("{}: tensor {} is not in {}, where {} has it", directory_.string(), tensor,
                       shard, kIndexName);
    }
    where_.emplace(tensor, number);
  }
}

const SafetensorsFile& Checkpoint::file_of(const std::string& tensor) const {
  const auto found = where_.find(tensor);
  if (found == where_.end()) throw InputError("{}: no tensor {}", directory_.string(), tensor);
  return files_[found->second];
}

DType Checkpoint::stored_type(const TensorSpec& tensor) const {
  const SafetensorsFile& file = file_of(tensor.name);
  const StoredTensor stored = file.tensor(tensor.name);
  if (stored.shape != tensor.shape) {
    throw InputError("{}: tensor {} has the shape [{}], [{}] is needed", file.path().string(),
                     tensor.name, fmt::join(stored.shape, ", "), fmt::join(tensor.shape, ", "));
  }
  return stored.dtype;
}

bool Checkpoint::has(const std::string& name) const { return where_.contains(name); }

void Checkpoint::read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
                      std::byte* to) const {
  const SafetensorsFile& file = file_of(tensor.name);
  const StoredTensor stored = file.tensor(tensor.name);
  const std::uint64_t size = size_of(stored.dtype);
  if (first > stored.data.size() / size || n > stored.data.size() / size - first) {
    throw Error("{}: elements {} to {} of tensor {} asked for, it has {}", file.path().string(),
                first, first + n, tensor.name, stored.data.size() / size);
  }
  const auto bytes = stored.data.subspan(first * size, n * size);
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  file.forget(bytes);
}

std::string Checkpoint::describe() const {
  Fingerprint fingerprint;
  for (const SafetensorsFile& file : files_) fingerprint.add(file);
  return fmt::format("{} ({:016x})", directory_.string(), fingerprint.value());
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(where_.size());
  for (const auto& [name, file] : where_) names.push_back(name);
  return names;
}

}  // namespace sluice
