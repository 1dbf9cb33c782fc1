#include "core/weights/write_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/files.hpp"
#include "core/weights/checkpoint_files.hpp"
#include "core/weights/safetensors.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kWrittenAtOnce = 4ull << 20;

struct Shard {
  std::vector<const TensorSpec*> tensors;
  std::uint64_t bytes = 0;
};

std::vector<Shard> split(const ModelPlan& plan, const ITensorSource& source,
                         std::uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  std::set<std::string_view> seen;  // a tied embedding is in two units
  for (const UnitSpec& unit : plan.units) {
    for (const TensorSpec& tensor : unit.tensors) {
      if (!seen.insert(tensor.name).second) continue;
      const std::uint64_t bytes = tensor.elements() * size_of(source.stored_type(tensor));
      if (!shards.back().tensors.empty() && shards.back().bytes + bytes > shard_bytes) {
        shards.emplace_back();
      }
      shards.back().tensors.push_back(&tensor);
      shards.back().bytes += bytes;
    }
  }
  return shards;
}

std::string header_of(const Shard& shard, const ITensorSource& source) {
  // Readers of the reference ask for this entry.
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t begin = 0;
  for (const TensorSpec* tensor : shard.tensors) {
    const DType stored = source.stored_type(*tensor);
    const std::uint64_t end = begin + tensor->elements() * size_of(stored);
    header[tensor->name] = {{"dtype", safetensors_name(stored)},
                            {"shape", tensor->shape},
                            {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data are aligned in memory
  return text;
}

void write_shard(const Shard& shard, const ITensorSource& source,
                 const std::filesystem::path& path) {
  AtomicFile file(path);
  const std::string header = header_of(shard, source);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  std::vector<std::byte> piece(kWrittenAtOnce * sizeof(float));
  for (const TensorSpec* tensor : shard.tensors) {
    const std::uint64_t size = size_of(source.stored_type(*tensor)), elements = tensor->elements();
    for (std::uint64_t first = 0; first < elements; first += kWrittenAtOnce) {
      const std::uint64_t n = std::min(kWrittenAtOnce, elements - first);
      source.read(*tensor, first, n, piece.data());
      file.write(piece.data(), n * size);
    }
  }
  file.finish();
}

}  // namespace

void write_checkpoint(const ModelPlan& plan, const ITensorSource& source,
                      const std::filesystem::path& directory, std::uint64_t shard_bytes) {
  for (const char* name : {kWeightsName, kIndexName}) {
    if (path_exists(directory / name)) {
      throw InputError("{}: has {} already; name another directory, or remove it",
                       directory.string(), name);
    }
  }
  const std::vector<Shard> shards = split(plan, source, shard_bytes);
  if (shards.size() == 1) {
    write_shard(shards[0], source, directory / kWeightsName);
    return;
  }
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(shards[i], source, directory / name);
    for (const TensorSpec* tensor : shards[i].tensors) map[tensor->name] = name;
    total += shards[i].bytes;
  }
  // Last, so that a directory with an index is complete.
  const nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file(directory / kIndexName, index.dump(2) + "\n");
}

}  // namespace sluice
