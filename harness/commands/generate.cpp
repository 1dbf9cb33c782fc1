#include <fmt/core.h>

#include <chrono>
#include <cstdio>

#include "core/error.hpp"
#include "harness/cell.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/commands/text_out.hpp"
#include "harness/progress.hpp"
#include "harness/results_file.hpp"
#include "harness/session.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

struct GenerateCommand {
  ExperimentOptions experiment;
  std::optional<std::string> prompt;
  std::string prompt_ids, force_ids;
  std::vector<std::string> stops;
  bool json = false, first_logits = false;
  ExitCode* exit_code = nullptr;
};

std::vector<std::int32_t> ids_of(const std::string& text, const char* option) {
  const auto ids = read_ids(text);
  if (!ids || ids->empty())
    throw InputError("{} {}: must be token ids separated by commas, like 1,2,3", option, text);
  return *ids;
}

// The command line as an experiment of one prompt.
Settings settings_of(const GenerateCommand& command) {
  Document document = read_document(YamlNode{}, command.experiment.overrides());
  if (!document.axes.empty())
    throw InputError("--set {}: generate runs once; there is nothing to sweep",
                     "sweep." + document.axes.front().path);
  Json prompt;
  if (command.prompt_ids.empty())
    prompt["text"] = *command.prompt;
  else
    prompt["ids"] = ids_of(command.prompt_ids, "--prompt-ids");
  document.base.set(*find_key("generation.prompts"), {Json::array({prompt}), {"--prompt"}});
  document.base.set(*find_key("measure.warmup"), {0, {}});
  document.base.set(*find_key("measure.repeats"), {1, {}});
  for (const std::string& stop : command.stops)
    if (stop.empty())
      throw InputError("--stop: an empty text is everywhere; give one of a character or more");
  if (!command.stops.empty())
    document.base.set(*find_key("generation.stop"), {command.stops, {"--stop"}});
  return document.base;
}

std::string shown_ids(const std::vector<std::int32_t>& ids) {
  std::string out;
  for (std::int32_t id : ids) out += fmt::format("{}{}", out.empty() ? "" : ",", id);
  return out;
}

void execute(GenerateCommand& command) {
  if (command.prompt.has_value() == !command.prompt_ids.empty())
    throw InputError("generate needs a prompt: --prompt TEXT or --prompt-ids 1,2,3, one of them");
  ModelCache models;
  PluginCache plugins = command.experiment.plugins();
  const PreparedCell cell = prepare(make_experiment(settings_of(command), ""), models, plugins,
                                    command.experiment.instruments());
  const GenerationChoice& generation = cell.experiment.generation;
  const bool executes = cell.experiment.device.kind != DeviceKind::sim;
  if (!generation.stop_texts.empty()) cell.model->text();

  GenerationRequest request;
  const auto start = std::chrono::steady_clock::now();
  request.prompt = prompt_ids(generation.prompts[0], 0, *cell.model, generation);
  const std::chrono::duration<double, std::milli> tokenising =
      std::chrono::steady_clock::now() - start;
  request.sampling = generation.sampling;
  request.max_new_tokens = generation.max_new_tokens;
  request.ignore_eos = generation.ignore_eos;
  request.want_first_logits = command.first_logits;
  if (!command.force_ids.empty()) {
    request.force_ids = ids_of(command.force_ids, "--force-ids");
    for (std::int32_t id : request.force_ids)
      if (id >= cell.model->source.config.vocab)
        throw InputError("--force-ids: {} is not an id of {}", id, cell.model->name);
  }

  Session session(cell, models);
  const std::uint64_t stall_before = session.stall_ns();
  session.begin_section("run 1");
  TextOut out(*cell.model, generation.stop_texts, executes && !command.json);
  const GenerationResult result =
      session.generator()
          .run({&request, 1}, 1,
               [&](std::size_t, std::int32_t token) { return !executes || out.take(token); })
          .front();
  out.finish();

  const double decode_ns = static_cast<double>(result.total_ns - result.first_token_ns);
  const std::size_t tokens = result.tokens.size();
  const Json rate = tokens > 1 && decode_ns > 0
                        ? Json(static_cast<double>(tokens - 1) * 1e9 / decode_ns)
                        : Json(nullptr);
  const double ttft_ms =
      (executes ? tokenising.count() : 0) + static_cast<double>(result.first_token_ns) / 1e6;
  const double stall_ms = static_cast<double>(session.stall_ns() - stall_before) / 1e6;
  const std::uint64_t peak = session.device().memory_use().device_peak_bytes;
  const std::uint64_t moved = session.counters().h2d_bytes;
  const std::string device = session.device().info().name;
  const bool chosen = executes && command.force_ids.empty();  // a replay forces none
  session.end_decisions(chosen ? Json(hash_tokens({result.tokens})) : Json(nullptr));
  const std::vector<Race> races = session.finish();
  for (const Race& race : races) say(race.describe());
  if (!races.empty()) command.exit_code->value = 1;
  if (command.json) {
    Json object{{"prompt_ids", request.prompt},
                {"tokens", executes ? Json(result.tokens) : Json(nullptr)},
                {"text", executes && out.has_text() ? Json(out.text()) : Json(nullptr)},
                {"ttft_ms", ttft_ms},
                {"decode_tokens_per_second", rate},
                {"peak_device_bytes", peak},
                {"h2d_bytes", moved},
                {"stall_ms", stall_ms}};
    if (cell.instruments.audit) object["races"] = races.size();
    if (command.first_logits && executes) object["first_logits"] = result.first_logits;
    if (!executes) object["predicted"] = true;
    fmt::print("{}\n", to_line(object));
    return;
  }
  if (executes) {
    if (!out.has_text()) fmt::print("{}", shown_ids(result.tokens));
    fmt::print("\n");
    std::fflush(stdout);
  }
  say(fmt::format(
      "{}{} tokens, first after {:.0f} ms{}, {} moved, {:.0f} ms stalled, {} on the device",
      executes ? "" : fmt::format("predicted for {}: ", device), tokens, ttft_ms,
      rate.is_null() ? "" : fmt::format(", then {:.2f} tokens/s", rate.get<double>()),
      format_bytes(moved), stall_ms, format_bytes(peak)));
}

}  // namespace

void add_generate(CLI::App& app, ExitCode& exit_code) {
  CLI::App& command = *app.add_subcommand("generate", "continues one prompt");
  auto options = std::make_shared<GenerateCommand>();
  options->exit_code = &exit_code;
  options->experiment.add_model(command);
  command.add_option("--prompt", options->prompt, "the text to continue")->type_name("TEXT");
  command.add_option("--prompt-ids", options->prompt_ids, "the same as token ids")
      ->type_name("1,2,3");
  options->experiment.add_keys(
      command,
      {"generation.max_new_tokens", "generation.min_new_tokens", "generation.greedy",
       "generation.temperature", "generation.top_k", "generation.top_p", "generation.min_p",
       "generation.seed", "generation.ignore_eos", "generation.chat", "generation.context",
       "device.memory_limit", "device.pinned_limit", "device.link_gbps"});
  command.add_option("--stop", options->stops, "a text that ends the answer; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command
      .add_option("--force-ids", options->force_ids,
                  "fed in place of the tokens chosen, which are still what is reported")
      ->type_name("1,2,3");
  options->experiment.add_to(command);
  options->experiment.add_instruments(command);
  command.add_flag("--first-logits", options->first_logits,
                   "with --json: those of the first token");
  command.add_flag("--json", options->json, "one JSON object in place of the text");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
