// Where a model is, opened: a checkpoint directory, or a shape by name and a seed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/weights/tensor_source.hpp"
#include "models/config.hpp"

namespace sluice {

struct CheckpointLocation {
  std::filesystem::path directory;
};
struct SyntheticLocation {
  std::string name;  // of a file NAME.json, in the form of config.json, in the shapes' directory
  std::uint64_t seed = 1;
};
using ModelLocation = std::variant<CheckpointLocation, SyntheticLocation>;

struct ModelSource {
  ModelConfig config;
  ModelPlan plan;
  std::unique_ptr<ITensorSource> tensors;
};

// Told what a person should know, a line each.
using Note = std::function<void(const std::string&)>;
void note_on_standard_error(const std::string& line);

// Throws InputError: no such directory or shape (with the nearest known names), or a config or
// checkpoint that is broken or that do not belong together. Reads no weights, but for samples. A
// quantised copy that is beside a checkpoint is used; `note` is told of one that was made of other
// weights, and a broken one is an InputError.
ModelSource open_model(const ModelLocation& location, const std::filesystem::path& shapes,
                       const Note& note = note_on_standard_error);

// A checkpoint without the copies beside it.
ModelSource open_checkpoint(const std::filesystem::path& directory);

// The names in `shapes` (configs/models), sorted. Throws InputError when there is no such directory.
std::vector<std::string> known_shapes(const std::filesystem::path& shapes);

}  // namespace sluice
