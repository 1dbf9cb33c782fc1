#include <fmt/core.h>

#include <filesystem>
#include <optional>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/weights/quantised_copy.hpp"
#include "harness/commands/commands.hpp"
#include "harness/paths.hpp"
#include "harness/progress.hpp"
#include "harness/value.hpp"
#include "models/model_source.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct QuantizeCommand {
  std::string model, to, out;
};

Encoding encoding_of(const std::string& name) {
  for (const Encoding encoding : {Encoding::int8, Encoding::int4})
    if (name == name_of(encoding)) return encoding;
  throw InputError("--to {}: int8 or int4 is needed", name);
}

void execute(const QuantizeCommand& command) {
  const Encoding encoding = encoding_of(command.to);
  const fs::path directory = expand_home(command.model);
  const ModelSource model = open_checkpoint(directory);
  if (model.config.quantisation)
    throw InputError("{}: its matrices come quantised and load as they are; nothing is to be done",
                     directory.string());
  const fs::path to = command.out.empty() ? directory : fs::path(expand_home(command.out));
  if (!directory_exists(to)) throw InputError("--out {}: no such directory", to.string());

  const fs::path path = quantised_copy_path(to, encoding);
  std::optional<Progress> progress;
  write_quantised_copy(
      model.plan, *model.tensors, encoding, path, [&](std::uint64_t done, std::uint64_t total) {
        if (!progress)
          progress.emplace(fmt::format("quantizing {} to {}", directory.string(), command.to),
                           static_cast<double>(total),
                           [](double x) { return format_bytes(static_cast<std::uint64_t>(x)); });
        progress->update(static_cast<double>(done));
      });
  if (progress) progress->clear();
  say(fmt::format("{}: {}", path.string(), format_bytes(InputFile(path).bytes())));
}

}  // namespace

void add_quantize(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "quantize", "writes a quantised copy of a checkpoint's matrices beside it, for fast loading");
  auto options = std::make_shared<QuantizeCommand>();
  command.add_option("model", options->model, "the checkpoint's directory")
      ->type_name("MODEL")
      ->required();
  command.add_option("--to", options->to, "int8 or int4")->type_name("ENCODING")->required();
  command
      .add_option("--out", options->out,
                  "another directory for the file, which is used only from MODEL")
      ->type_name("DIR");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
