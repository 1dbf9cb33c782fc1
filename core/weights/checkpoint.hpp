// A checkpoint directory: model.safetensors, or shards with model.safetensors.index.json.
#pragma once
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/weights/safetensors.hpp"
#include "core/weights/tensor_source.hpp"

namespace sluice {

class Checkpoint final : public ITensorSource {
 public:
  // Opens every file; model.safetensors counts before an index. Throws InputError naming the file,
  // shard or tensor that is missing or broken.
  explicit Checkpoint(const std::filesystem::path& directory);

  DType stored_type(const TensorSpec& tensor) const override;
  bool has(const std::string& name) const override;
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override;
  std::string describe() const override;

  // Of all tensors, also of types that are not supported; in no order.
  std::vector<std::string> names() const;
  // Throws InputError when there is no such tensor.
  const SafetensorsFile& file_of(const std::string& tensor) const;

 private:
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::size_t> where_;  // tensor name to index in files_
};

}  // namespace sluice
