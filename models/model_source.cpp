#include "models/model_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/named_files.hpp"
#include "core/nearest.hpp"
#include "core/weights/checkpoint.hpp"
#include "core/weights/synthetic.hpp"
#include "models/model_plan.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kLargestShape = 1ull << 20;

ModelSource open_checkpoint(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    throw InputError("{}: no such model directory", directory.string());
  }
  ModelSource model;
  model.config = load_model_config(directory);
  model.plan = plan_model(model.config);
  auto checkpoint = std::make_unique<Checkpoint>(directory);
  check_all_used(model.plan, checkpoint->names(), directory.string());
  for (const UnitSpec& unit : model.plan.units) {
    for (const TensorSpec& tensor : unit.tensors) checkpoint->stored_type(tensor);
  }
  model.tensors = std::move(checkpoint);
  return model;
}

ModelSource open_synthetic(const SyntheticLocation& location, const std::filesystem::path& shapes) {
  const std::vector<std::string> known = known_shapes(shapes);
  if (std::find(known.begin(), known.end(), location.name) == known.end()) {
    const std::vector<std::string> nearest = nearest_names(location.name, known);
    throw InputError("no model shape {} in {}; {}: {}", location.name, shapes.string(),
                     nearest.empty() ? "known are" : "near are",
                     fmt::join(nearest.empty() ? known : nearest, ", "));
  }
  const std::filesystem::path path = shapes / (location.name + ".json");
  ModelSource model;
  model.config = parse_model_config(read_text_file(path, kLargestShape), path.string());
  model.plan = plan_model(model.config);
  model.tensors =
      std::make_unique<SyntheticWeights>(location.name, location.seed, model.config.dtype);
  return model;
}

}  // namespace

std::vector<std::string> known_shapes(const std::filesystem::path& shapes) {
  std::error_code error;
  if (!std::filesystem::is_directory(shapes, error)) {
    throw InputError("{}: no such directory of model shapes", shapes.string());
  }
  return names_in(shapes, ".json");
}

ModelSource open_model(const ModelLocation& location, const std::filesystem::path& shapes) {
  if (const auto* checkpoint = std::get_if<CheckpointLocation>(&location)) {
    return open_checkpoint(checkpoint->directory);
  }
  return open_synthetic(std::get<SyntheticLocation>(location), shapes);
}

}  // namespace sluice
