#include <fmt/core.h>

#include <filesystem>
#include <optional>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/weights/hash.hpp"
#include "core/weights/quantised_copy.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/evaluation.hpp"
#include "harness/paths.hpp"
#include "harness/progress.hpp"
#include "harness/value.hpp"
#include "models/calibration/calibrate.hpp"
#include "models/decoder.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct QuantizeCommand {
  std::string model, to, out, calibrate;
};

Encoding encoding_of(const std::string& name) {
  for (const Encoding encoding : {Encoding::int8, Encoding::int4})
    if (name == name_of(encoding)) return encoding;
  throw InputError("--to {}: int8 or int4 is needed", name);
}

// How much of a text is read, in windows of how many positions; fewer windows than the least say too
// little of what a matrix multiplies.
constexpr std::uint32_t kCalibrationWindow = 512;
constexpr std::uint64_t kCalibrationTokens = 32 * std::uint64_t{kCalibrationWindow};
constexpr std::size_t kLeastWindows = 8;

struct CalibrationText {
  CalibrationWindows windows;
  std::string description;  // for the copy
};

CalibrationText read_calibration(const Model& model, const fs::path& path) {
  const std::string text = read_file(path, kMostTextBytes);
  const std::uint32_t length =
      std::min(kCalibrationWindow, Decoder::max_context(model.source.config));
  CalibrationText out;
  std::uint64_t tokens = 0;
  for (Window& window : cut_windows(model, text, length, kCalibrationTokens, path.string())) {
    tokens += window.ids.size();
    if (window.ids.size() == length) out.windows.push_back(std::move(window.ids));
  }
  if (out.windows.size() < kLeastWindows)
    throw InputError(
        "--calibrate {}: {} tokens are too few to calibrate with: {} are needed, and up to {} used",
        path.string(), tokens, kLeastWindows * length, kCalibrationTokens);
  out.description =
      fmt::format("int4 calibrated with {} windows of {} tokens of the text {:016x}",
                  out.windows.size(), length, hash_bytes(std::as_bytes(std::span(text)), 0));
  return out;
}

// The model's matrices with a text in view.
std::unique_ptr<ITensorSource> calibrate(const Model& model, const CalibrationText& text) {
  std::optional<Progress> progress;
  return calibrate_int4(model.source, text.windows, [&](std::size_t done, std::size_t total) {
    if (!progress)
      progress.emplace(fmt::format("calibrating {}", model.name), static_cast<double>(total),
                       [](double x) { return fmt::format("{:.3g} units", x); });
    progress->update(static_cast<double>(done));
    if (done == total) progress->clear();
  });
}

void execute(const QuantizeCommand& command) {
  const Encoding encoding = encoding_of(command.to);
  if (!command.calibrate.empty() && encoding != Encoding::int4)
    throw InputError("--calibrate is for --to int4; --to {} needs none", command.to);
  const fs::path directory = expand_home(command.model);
  Model opened;
  opened.name = directory.string();
  opened.source = open_checkpoint(directory);
  const ModelSource& model = opened.source;
  if (model.config.quantisation)
    throw InputError("{}: its matrices come quantised and load as they are; nothing is to be done",
                     directory.string());
  const fs::path to = command.out.empty() ? directory : fs::path(expand_home(command.out));
  if (!directory_exists(to)) throw InputError("--out {}: no such directory", to.string());

  CalibrationText text;
  std::unique_ptr<ITensorSource> calibrated;
  if (!command.calibrate.empty()) {
    opened.tokenizer = Tokenizer::load(directory);
    text = read_calibration(opened, expand_home(command.calibrate));
    calibrated = calibrate(opened, text);
  }

  const fs::path path = quantised_copy_path(to, encoding);
  std::optional<Progress> progress;
  write_quantised_copy(
      model.plan, calibrated ? *calibrated : *model.tensors, encoding, path, text.description,
      [&](std::uint64_t done, std::uint64_t total) {
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
  command
      .add_option(
          "--calibrate", options->calibrate,
          "a text like those that the model will read; int4 weights are then rounded so that "
          "it changes least")
      ->type_name("TEXTFILE");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
