#include <fmt/core.h>

#include <filesystem>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/files.hpp"
#include "core/weights/write_checkpoint.hpp"
#include "harness/commands/commands.hpp"
#include "harness/paths.hpp"
#include "harness/progress.hpp"
#include "harness/value.hpp"
#include "models/model_files.hpp"
#include "models/model_source.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct SynthesizeCommand {
  std::string name, to;
  std::uint64_t seed = 1;
};

void execute(const SynthesizeCommand& command) {
  const fs::path shapes = configs_directory() / "models";
  const ModelSource model = open_model(SyntheticLocation{command.name, command.seed}, shapes);
  fs::path to = absolute_path(expand_home(command.to));
  if (!to.has_filename()) to = to.parent_path();
  if (path_exists(to) && !(directory_exists(to) && entries_of(to).empty()))
    throw InputError("--to {}: exists and is not an empty directory", to.string());

  // Written beside its place and moved there when it is whole.
  fs::path partial = to;
  partial += ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  if (!error) fs::create_directories(partial, error);
  if (error) throw InputError("--to {}: cannot be made: {}", to.string(), error.message());
  try {
    write_checkpoint(model.plan, *model.tensors, partial, 4ull << 30);
    write_file(partial / kConfigName,
               read_file(shapes / (command.name + ".json"), kLargestModelFile));
    fs::rename(partial, to, error);  // an empty directory gives way
    if (error)
      throw Error("{}: cannot be moved to {}: {}", partial.string(), to.string(), error.message());
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
  std::uint64_t bytes = 0;
  for (const fs::path& file : entries_of(to)) bytes += InputFile(file).bytes();
  say(fmt::format("{}: {}", to.string(), format_bytes(bytes)));
}

}  // namespace

void add_synthesize(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "synthesize", "writes random weights of a shape in configs/models as a checkpoint");
  auto options = std::make_shared<SynthesizeCommand>();
  command.add_option("name", options->name, "of the shape")->type_name("NAME")->required();
  command.add_option("--to", options->to, "the directory to make")->type_name("DIR")->required();
  command.add_option("--seed", options->seed, "of the weights; the same as in an experiment");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
