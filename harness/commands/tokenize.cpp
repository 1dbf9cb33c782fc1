#include <fmt/core.h>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "harness/commands/commands.hpp"
#include "harness/paths.hpp"
#include "models/chat_format.hpp"
#include "models/tokenizer/tokenizer.hpp"

namespace sluice {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::uint64_t kLargestInput = 1ull << 30;

struct TokenizeCommand {
  std::string tokenizer;
  bool decode = false, chat = false, no_special = false;
};

OrderedJson read_input() {
  OrderedJson input = parse_ordered_json(read_standard_input(kLargestInput), "standard input");
  if (!input.is_array())
    throw InputError("standard input: must be a JSON array, not {}", input.type_name());
  return input;
}

[[noreturn]] void wrong_item(std::size_t i, const char* wanted, const OrderedJson& item) {
  throw InputError("standard input: item {} must be {}, not {}", i, wanted, item.type_name());
}

std::string decode(const Tokenizer& tokenizer, const OrderedJson& item, std::size_t i) {
  if (!item.is_array()) wrong_item(i, "an array of token ids", item);
  std::vector<std::int32_t> ids;
  for (const OrderedJson& id : item) {
    if (!id.is_number_integer() || id < 0 || id > 0x7fffffff)
      throw InputError("standard input: item {}: {} is not a token id", i, id.dump());
    ids.push_back(id.get<std::int32_t>());
  }
  return tokenizer.decode(ids);
}

ChatRequest chat_request(const OrderedJson& item, std::size_t i) {
  if (!item.is_object()) wrong_item(i, "an object with messages", item);
  ChatRequest request;
  for (const auto& [key, value] : item.items()) {
    if (key == "messages") {
      request.messages = value;
    } else if (key == "tools") {
      request.tools = value;
    } else if (key == "enable_thinking" || key == "add_generation_prompt") {
      if (!value.is_boolean())
        throw InputError("standard input: item {}: {} must be true or false, not {}", i, key,
                         value.type_name());
      if (key == "enable_thinking")
        request.enable_thinking = value.get<bool>();
      else
        request.add_generation_prompt = value.get<bool>();
    } else {
      throw InputError(
          "standard input: item {}: unknown key '{}'; known: messages, tools, enable_thinking, "
          "add_generation_prompt",
          i, key);
    }
  }
  if (!item.contains("messages")) throw InputError("standard input: item {}: no messages", i);
  return request;
}

void execute(const TokenizeCommand& command) {
  const std::filesystem::path directory =
      find_path(command.tokenizer, {"--tokenizer " + command.tokenizer}, "the tokenizer");
  const Tokenizer tokenizer = Tokenizer::load(directory);
  std::optional<ChatFormat> format;
  if (command.chat) format = ChatFormat::load(directory);
  const OrderedJson input = read_input();
  OrderedJson output = OrderedJson::array();
  for (std::size_t i = 0; i < input.size(); ++i) {
    const OrderedJson& item = input[i];
    if (command.decode) {
      output.push_back(decode(tokenizer, item, i));
    } else if (command.chat) {
      const std::string text = format->render(chat_request(item, i));
      output.push_back({{"text", text}, {"ids", tokenizer.encode(text)}});
    } else {
      if (!item.is_string()) wrong_item(i, "a string", item);
      output.push_back(tokenizer.encode(item.get<std::string>(), !command.no_special));
    }
  }
  fmt::print("{}\n", output.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "tokenize", "a JSON array of texts on standard input to an array of arrays of token ids");
  auto options = std::make_shared<TokenizeCommand>();
  command.add_option("--tokenizer", options->tokenizer, "a directory with tokenizer.json")
      ->type_name("DIR")
      ->required();
  auto* decode = command.add_flag("--decode", options->decode, "the other way round");
  command
      .add_flag("--chat", options->chat,
                "an array of {messages, tools, enable_thinking, add_generation_prompt} to an array "
                "of {text, ids}")
      ->excludes(decode);
  command.add_flag("--no-special", options->no_special,
                   "leaves out what the tokenizer adds around a text, such as a bos token");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
