#include "core/weights/write_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "core/weights/safetensors.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kPieceElements = 4ull << 20;

struct Shard {
  std::vector<const TensorSpec*> tensors;
  std::uint64_t bytes = 0;
};

// A file that appears under its name when it is whole, and not at all when writing fails.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)),
        unfinished_(path_.parent_path() / (path_.filename().string() + ".part")),
        out_(unfinished_, std::ios::binary | std::ios::trunc) {
    check();
  }
  ~AtomicFile() {
    if (finished_) return;
    out_.close();
    std::error_code error;
    std::filesystem::remove(unfinished_, error);
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::uint64_t bytes) {
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    check();
  }
  void finish() {
    out_.close();
    check();
    std::filesystem::rename(unfinished_, path_);
    finished_ = true;
  }

 private:
  void check() {
    if (!out_) throw Error("{}: writing failed", unfinished_.string());
  }

  std::filesystem::path path_, unfinished_;
  std::ofstream out_;
  bool finished_ = false;
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
  std::vector<std::byte> piece(kPieceElements * sizeof(float));
  for (const TensorSpec* tensor : shard.tensors) {
    const std::uint64_t size = size_of(source.stored_type(*tensor)), elements = tensor->elements();
    for (std::uint64_t first = 0; first < elements; first += kPieceElements) {
      const std::uint64_t n = std::min(kPieceElements, elements - first);
      source.read(*tensor, first, n, piece.data());
      file.write(piece.data(), n * size);
    }
  }
  file.finish();
}

}  // namespace

void write_checkpoint(const ModelPlan& plan, const ITensorSource& source,
                      const std::filesystem::path& directory, std::uint64_t shard_bytes) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::filesystem::exists(directory / name)) {
      throw InputError("{}: has {} already; name another directory, or remove it",
                       directory.string(), name);
    }
  }
  const std::vector<Shard> shards = split(plan, source, shard_bytes);
  if (shards.size() == 1) {
    write_shard(shards[0], source, directory / "model.safetensors");
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
  const std::string text = index.dump(2) + "\n";
  AtomicFile file(directory / "model.safetensors.index.json");
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace sluice
