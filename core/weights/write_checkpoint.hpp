// Writes weights as a checkpoint directory that this project and the reference read.
#pragma once
#include <cstdint>
#include <filesystem>

#include "core/weights/tensor_source.hpp"

namespace sluice {

// Writes `plan` from `source` as safetensors shards of at most `shard_bytes` (a larger tensor has
// one to itself), with an index, written last, when there is more than one. The directory must
// exist. Throws InputError when it holds a checkpoint already, Error when writing fails.
void write_checkpoint(const ModelPlan& plan, const ITensorSource& source,
                      const std::filesystem::path& directory, std::uint64_t shard_bytes);

}  // namespace sluice
