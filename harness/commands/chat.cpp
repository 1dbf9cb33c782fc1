#include <fmt/core.h>
#include <unistd.h>

#include <iostream>

#include "core/error.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/commands/text_out.hpp"
#include "harness/progress.hpp"
#include "harness/session.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

constexpr std::uint32_t kChatContext = 4096;
constexpr std::uint32_t kAnswerTokens = 1024;

struct ChatCommand {
  ExperimentOptions experiment;
  std::string system;
  bool no_thinking = false;
};

// The command line as an experiment, whose one prompt only stands for those to come.
PreparedCell prepare_chat(const ChatCommand& command, ModelCache& models, PluginCache& plugins) {
  Document document = read_document(YamlNode{}, command.experiment.overrides());
  Settings& settings = document.base;
  settings.set(*find_key("generation.prompts"), {Json::array({{{"ids", {0}}}}), {}});
  const Model& model = models.open(make_experiment(settings, "").model);
  model.text();
  model.chat_format();
  const auto set_default = [&](const char* key, const Json& value) {
    if (!settings.find(key)) settings.set(*find_key(key), {value, {}});
  };
  const std::uint32_t positions = Decoder::max_context(model.source.config);
  set_default("generation.context", std::min(kChatContext, positions));
  const Json context = settings.value("generation.context");
  const std::uint32_t room = context.is_number() ? context.get<std::uint32_t>() : positions;
  set_default("generation.max_new_tokens", std::min(kAnswerTokens, std::max(1u, room / 2)));
  // Unless told otherwise, sampling is what the model's makers say.
  const GenerationConfig& makers = model.generation;
  if (!settings.find("generation.greedy") && !settings.find("generation.temperature") &&
      makers.sample.value_or(false)) {
    set_default("generation.temperature", makers.temperature.value_or(1.0));
    if (makers.top_k) set_default("generation.top_k", *makers.top_k);
    if (makers.top_p) set_default("generation.top_p", *makers.top_p);
    if (makers.min_p) set_default("generation.min_p", *makers.min_p);
  }
  return prepare(make_experiment(settings, ""), models, plugins);
}

class Conversation {
 public:
  Conversation(const ChatCommand& command, const PreparedCell& cell, ModelCache& models)
      : command_(command), cell_(cell), session_(cell, models) {
    reset();
  }

  void reset() {
    messages_ = nlohmann::ordered_json::array();
    if (!command_.system.empty())
      messages_.push_back({{"role", "system"}, {"content", command_.system}});
  }

  void say_to_model(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    const std::vector<std::int32_t> prompt = fitting_prompt();
    if (prompt.empty()) return;

    GenerationRequest request;
    request.prompt = prompt;
    request.sampling = cell_.experiment.generation.sampling;
    request.sampling.seed += turn_++;
    request.max_new_tokens = cell_.experiment.generation.max_new_tokens;
    TextOut out(*cell_.model, {}, true);
    const GenerationResult result =
        session_.generator()
            .run({&request, 1}, 1, [&](std::size_t, std::int32_t token) { return out.take(token); })
            .front();
    out.finish();
    fmt::print("\n");
    std::fflush(stdout);
    messages_.push_back({{"role", "assistant"}, {"content", out.text()}});
    report(result, prompt.size());
  }

 private:
  std::vector<std::int32_t> encode() const {
    ChatRequest request;
    request.messages = messages_;
    if (command_.no_thinking) request.enable_thinking = false;
    return cell_.model->text().encode(cell_.model->chat_format().render(request));
  }

  // The conversation as ids. Where it no longer fits the context its oldest turns are forgotten;
  // empty when the last message alone does not fit.
  std::vector<std::int32_t> fitting_prompt() {
    const std::uint32_t room = cell_.context - cell_.experiment.generation.max_new_tokens;
    const std::size_t first = command_.system.empty() ? 0 : 1;
    std::size_t forgotten = 0;
    std::vector<std::int32_t> ids = encode();
    while (ids.size() > room && messages_.size() > first + 2) {
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                      messages_.begin() + static_cast<std::ptrdiff_t>(first) + 2);
      ++forgotten;
      ids = encode();
    }
    if (forgotten > 0)
      say(fmt::format("(the oldest {} turns no longer fit the context of {} and are forgotten)",
                      forgotten, cell_.context));
    if (ids.size() <= room) return ids;
    say(fmt::format(
        "(the message has {} tokens; a context of {} with {} kept for the answer leaves "
        "{}: shorten it, or give a larger --context)",
        ids.size(), cell_.context, cell_.experiment.generation.max_new_tokens, room));
    messages_.erase(messages_.size() - 1);
    return {};
  }

  static void report(const GenerationResult& result, std::size_t prompt_tokens) {
    const double decode_s = static_cast<double>(result.total_ns - result.first_token_ns) / 1e9;
    std::string line =
        fmt::format("({} + {} tokens, first after {:.0f} ms", prompt_tokens, result.tokens.size(),
                    static_cast<double>(result.first_token_ns) / 1e6);
    if (result.tokens.size() > 1 && decode_s > 0)
      line += fmt::format(", {:.2f} tokens/s",
                          static_cast<double>(result.tokens.size() - 1) / decode_s);
    say(line + ")");
  }

  const ChatCommand& command_;
  const PreparedCell& cell_;
  Session session_;
  nlohmann::ordered_json messages_;
  std::uint64_t turn_ = 0;
};

void execute(const ChatCommand& command) {
  ModelCache models;
  PluginCache plugins = command.experiment.plugins();
  const PreparedCell cell = prepare_chat(command, models, plugins);
  if (cell.experiment.device.kind == DeviceKind::sim)
    throw InputError(
        "chat: a simulated device has no answers; `sluice generate` predicts their pace");
  Conversation conversation(command, cell, models);
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) say("(/reset begins anew, /exit ends)");
  for (std::string line;;) {
    if (terminal) {
      std::fputs("> ", stderr);
      std::fflush(stderr);
    }
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.ends_with('\r')) line.pop_back();
    if (line == "/reset")
      conversation.reset();
    else if (!line.empty())
      conversation.say_to_model(line);
  }
}

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("chat", "talks with a model: a line of standard input is a message");
  auto options = std::make_shared<ChatCommand>();
  options->experiment.add_model(command);
  command.add_option("--system", options->system, "the system message")->type_name("TEXT");
  command.add_flag("--no-thinking", options->no_thinking,
                   "tells the chat template not to let the model think first");
  options->experiment.add_keys(
      command, {"generation.max_new_tokens", "generation.min_new_tokens", "generation.greedy",
                "generation.temperature", "generation.top_k", "generation.top_p",
                "generation.min_p", "generation.seed", "generation.context", "device.memory_limit",
                "device.pinned_limit", "device.link_gbps"});
  options->experiment.add_to(command);
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
