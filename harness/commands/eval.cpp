#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/error.hpp"
#include "core/files.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/evaluation.hpp"
#include "harness/progress.hpp"
#include "harness/results_file.hpp"
#include "harness/session.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

// A window of this many positions, or what the model has.
constexpr std::uint32_t kWindow = 1024;

struct EvalCommand {
  ExperimentOptions experiment;
  std::string text, reference;
  std::vector<std::string> reference_params;
  std::uint64_t max_tokens = std::numeric_limits<std::uint64_t>::max();
  bool json = false;
};

bool is_of_policy(const Override& one) {
  return one.path == "policy" || one.path.starts_with("policy.");
}

// The same but for the policy and its parameters.
std::vector<Override> reference_overrides(const EvalCommand& command) {
  std::vector<Override> out = command.experiment.overrides();
  std::erase_if(out, is_of_policy);
  out.push_back(plain_override("policy", command.reference, "--reference"));
  for (Override& param : param_overrides(command.reference_params, "--reference-param"))
    out.push_back(std::move(param));
  return out;
}

Experiment experiment_of(const std::vector<Override>& overrides) {
  const Document document = read_document(YamlNode{}, overrides);
  if (!document.axes.empty())
    throw InputError("--set {}: eval runs once; there is nothing to sweep",
                     "sweep." + document.axes.front().path);
  return make_experiment(document.base, "");
}

// For windows of which the first is the longest.
PreparedCell prepare_windows(Experiment experiment, const Window& longest, ModelCache& models,
                             PluginCache& plugins) {
  const std::span<const std::int32_t> fed = longest.fed();
  experiment.generation.prompts = Json::array({{{"ids", Json(fed)}}});
  experiment.generation.max_new_tokens = 0;
  PreparedCell cell = prepare(std::move(experiment), models, plugins);
  cell.logit_rows = kScoredRows;
  return cell;
}

// As a check of CLI11, whose own takes -1 for 2^64 - 1.
std::string at_least_one(const std::string& text) {
  const std::optional<ReadInteger> number = read_integer(text);
  if (number && !number->overflow && number->value >= 1) return "";
  return fmt::format("{} is not an integer of at least 1", text);
}

std::string policy_text(const PreparedCell& cell) { return policy_label(cell.experiment.inputs); }

void print_quality(const Json& report) {
  fmt::print("{}: {} tokens of {} in {} windows of up to {}, {} on {}\n\n",
             report["model"].get<std::string>(), report["tokens"].get<std::uint64_t>(),
             report["text"].get<std::string>(), report["windows"].get<std::uint64_t>(),
             report["context"].get<std::uint32_t>(), report["dtype"].get<std::string>(),
             report["device"].get<std::string>());
  const double tested = report["perplexity"].get<double>();
  const auto line = [](const char* name, double perplexity, const std::string& what) {
    fmt::print("{:<18}{:>12.4f}  {}\n", name, perplexity, what);
  };
  line("perplexity", tested, report["policy"].get<std::string>());
  if (!report.contains("reference")) return;
  const Json& reference = report["reference"];
  const double before = reference["perplexity"].get<double>();
  line("of the reference", before, reference["policy"].get<std::string>());
  fmt::print("{:<18}{:>+12.3f} %\n", "change", 100 * (tested / before - 1));
  fmt::print("{:<18}{:>12.6f} nats\n", "mean KL", reference["mean_kl"].get<double>());
  fmt::print("{:<18}{:>12.6f} nats\n", "largest KL", reference["max_kl"].get<double>());
  fmt::print("{:<18}{:>12.3f} %\n", "top-1 agreement",
             100 * reference["top1_agreement"].get<double>());
}

void execute(const EvalCommand& command) {
  if (command.reference.empty() && !command.reference_params.empty())
    throw InputError("--reference-param {}: there is no --reference that it could be of",
                     command.reference_params.front());
  ModelCache models;
  PluginCache plugins = command.experiment.plugins();
  Experiment experiment = experiment_of(command.experiment.overrides());
  if (experiment.device.kind == DeviceKind::sim)
    throw InputError(
        "eval needs logits, and a simulated device computes none; use --device cpu or cuda");
  const std::string text = read_file(command.text, kMostTextBytes);
  const Model& model = models.open(experiment.model);
  const std::uint32_t most = Decoder::max_context(model.source.config);
  const std::uint32_t context = experiment.generation.context.value_or(std::min(kWindow, most));
  if (context > most)
    throw InputError("a context of {} is beyond the {} positions of {}", context, most, model.name);
  const std::vector<Window> windows =
      cut_windows(model, text, context, command.max_tokens, command.text);

  std::optional<PreparedCell> reference_cell;
  std::optional<Session> reference;
  const PreparedCell cell =
      prepare_windows(std::move(experiment), windows.front(), models, plugins);
  if (!command.reference.empty()) {
    reference_cell = prepare_windows(experiment_of(reference_overrides(command)), windows.front(),
                                     models, plugins);
    reference.emplace(*reference_cell, models);
  }
  Session session(cell, models);

  std::uint64_t total = 0;
  for (const Window& window : windows) total += window.scored();
  const auto start = std::chrono::steady_clock::now();
  Evaluation found;
  {
    Progress progress("scoring", static_cast<double>(total),
                      [](double tokens) { return fmt::format("{:.0f} tokens", tokens); });
    found = evaluate(windows, reference ? &*reference : nullptr, session, cell.dtype,
                     static_cast<std::uint32_t>(model.source.config.vocab),
                     [&](std::uint64_t done) { progress.update(static_cast<double>(done)); });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  Json report{{"model", model.name},
              {"text", command.text},
              {"dtype", name_of(cell.dtype)},
              {"device", session.device().info().name},
              {"policy", policy_text(cell)},
              {"weights", session.weights()},
              {"context", context},
              {"windows", windows.size()},
              {"tokens", found.tested.tokens},
              {"perplexity", found.tested.perplexity()},
              {"seconds", took.count()}};
  if (reference)
    report["reference"] = {{"policy", policy_text(*reference_cell)},
                           {"weights", reference->weights()},
                           {"perplexity", found.reference->perplexity()},
                           {"mean_kl", found.divergence.mean_kl()},
                           {"max_kl", found.divergence.largest_kl},
                           {"top1_agreement", found.divergence.agreement()}};
  if (command.json)
    fmt::print("{}\n", to_line(report));
  else
    print_quality(report);
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "eval", "how well a policy's weights predict a text, and how far they are from others");
  auto options = std::make_shared<EvalCommand>();
  options->experiment.add_model(command);
  command.add_option("--text", options->text, "what is to be predicted, token by token")
      ->type_name("FILE")
      ->required();
  options->experiment.add_keys(command, {"generation.context", "device.memory_limit",
                                         "device.pinned_limit", "device.link_gbps"});
  command.add_option("--max-tokens", options->max_tokens, "takes only the text's first tokens")
      ->type_name("N")
      ->check(at_least_one);
  options->experiment.add_to(command);
  command
      .add_option("--reference", options->reference,
                  "the policy whose weights it is compared with, such as resident: the model's own")
      ->type_name("NAME");
  command
      .add_option("--reference-param", options->reference_params,
                  "a parameter of that policy; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_flag("--json", options->json, "one JSON object in place of the table");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
