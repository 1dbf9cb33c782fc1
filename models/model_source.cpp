#include "models/model_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/named_files.hpp"
#include "core/nearest.hpp"
#include "core/weights/checkpoint.hpp"
#include "core/weights/fused_experts.hpp"
#include "core/weights/quantised_checkpoint.hpp"
#include "core/weights/quantised_copy.hpp"
#include "core/weights/synthetic.hpp"
#include "models/model_files.hpp"
#include "models/model_plan.hpp"

namespace sluice {
namespace {

void use_copies(ModelSource& model, const std::filesystem::path& directory, const Note& note) {
  std::string fingerprint;  // worked out where there is a copy
  for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
    const std::filesystem::path path = quantised_copy_path(directory, encoding);
    if (!path_exists(path)) continue;
    QuantisedCopyFile copy(path, encoding);
    if (fingerprint.empty()) fingerprint = source_fingerprint(model.plan, *model.tensors);
    if (!copy.is_of(fingerprint)) {
      note(
          fmt::format("{}: not used: it was made of other weights than the checkpoint has now, or "
                      "by another version; `sluice quantize {} --to {}` makes it again",
                      path.string(), directory.string(), name_of(encoding)));
      continue;
    }
    copy.check(model.plan);
    model.tensors = std::make_unique<QuantisedCopy>(std::move(model.tensors), std::move(copy));
  }
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
  model.config = parse_model_config(read_file(path, kLargestModelFile), path.string());
  model.plan = plan_model(model.config);
  model.tensors =
      std::make_unique<SyntheticWeights>(location.name, location.seed, model.config.dtype);
  return model;
}

}  // namespace

ModelSource open_checkpoint(const std::filesystem::path& directory) {
  if (!directory_exists(directory)) {
    throw InputError("{}: no such model directory", directory.string());
  }
  ModelSource model;
  model.config = load_model_config(directory);
  model.plan = plan_model(model.config);
  auto checkpoint = std::make_unique<Checkpoint>(directory);
  std::vector<std::string> names;
  if (model.config.quantisation) {
    auto quantised = std::make_unique<QuantisedCheckpoint>(
        std::move(checkpoint), model.plan, *model.config.quantisation, model.config.dtype);
    names = quantised->names();
    model.tensors = std::move(quantised);
  } else if (FusedExperts::are_in(*checkpoint)) {
    auto apart = std::make_unique<FusedExperts>(std::move(checkpoint));
    names = apart->names();
    model.tensors = std::move(apart);
  } else {
    names = checkpoint->names();
    model.tensors = std::move(checkpoint);
  }
  check_all_used(model.plan, names, directory.string());
  for (const UnitSpec& unit : model.plan.units) {
    for (const TensorSpec& tensor : unit.tensors) model.tensors->stored_type(tensor);
  }
  return model;
}

std::vector<std::string> known_shapes(const std::filesystem::path& shapes) {
  if (!directory_exists(shapes)) {
    throw InputError("{}: no such directory of model shapes", shapes.string());
  }
  return names_in(shapes, ".json");
}

void note_on_standard_error(const std::string& line) {
  std::fputs((line + "\n").c_str(), stderr);  // where it cannot be written it is lost
}

ModelSource open_model(const ModelLocation& location, const std::filesystem::path& shapes,
                       const Note& note) {
  if (const auto* checkpoint = std::get_if<CheckpointLocation>(&location)) {
    ModelSource model = open_checkpoint(checkpoint->directory);
    // What comes quantised is there in its encoding already.
    if (!model.config.quantisation) use_copies(model, checkpoint->directory, note);
    return model;
  }
  return open_synthetic(std::get<SyntheticLocation>(location), shapes);
}

}  // namespace sluice
