#include "models/chat_format.hpp"

#include <array>
#include <string_view>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"
#include "models/chat/chat_template.hpp"
#include "models/model_files.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 5> kSpecialTokens = {"bos_token", "eos_token", "unk_token",
                                                            "pad_token", "sep_token"};

// A template's text and where it came from.
struct Source {
  std::string text;
  std::string place;
};

// A file may list several templates; the one for plain chats is called "default".
std::string template_of(const JsonNode& node) {
  if (node.raw().is_string()) return node.string();
  node.expect_array();
  for (std::size_t i = 0; i < node.size(); ++i) {
    if (node[i].at("name").string() == "default") return node[i].at("template").string();
  }
  node.fail("lists no template with the name 'default'");
}

std::optional<std::string> read_template(const std::filesystem::path& file) {
  if (!path_exists(file)) return std::nullopt;
  std::string text = read_file(file, kLargestModelFile);
  if (utf8::valid_prefix(text) != text.size()) throw InputError("{}: is not UTF-8", file.string());
  return text;
}

// A special token is a string, or an object that holds it as "content".
std::optional<std::string> special_token(const JsonNode& config, std::string_view key) {
  const auto node = config.find(key);
  if (!node) return std::nullopt;
  return node->raw().is_object() ? node->at("content").string() : node->string();
}

void check_messages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array())
    throw InputError("messages: must be an array, is {}", messages.type_name());
  if (messages.empty()) throw InputError("messages: there is none");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const nlohmann::ordered_json& message = messages[i];
    if (!message.is_object())
      throw InputError("messages[{}]: must be an object, is {}", i, message.type_name());
    const auto role = message.find("role");
    if (role == message.end()) throw InputError("messages[{}]: the key 'role' is missing", i);
    if (!role->is_string())
      throw InputError("messages[{}].role: must be a string, is {}", i, role->type_name());
    const auto content = message.find("content");
    const bool has_content = content != message.end() && !content->is_null();
    if (!has_content && message.contains("tool_calls")) continue;
    if (content == message.end()) throw InputError("messages[{}]: the key 'content' is missing", i);
    // Some templates take an array of parts.
    if (!content->is_string() && !content->is_array()) {
      throw InputError("messages[{}].content: must be a string, is {}", i, content->type_name());
    }
  }
}

// `value` with what is not UTF-8 in its texts replaced.
nlohmann::ordered_json as_utf8(const nlohmann::ordered_json& value) {
  if (value.is_string()) return utf8::replace_invalid(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  nlohmann::ordered_json copy(value.type());
  if (value.is_array()) {
    for (const nlohmann::ordered_json& element : value) copy.push_back(as_utf8(element));
  } else {
    for (const auto& [key, element] : value.items())
      copy[utf8::replace_invalid(key)] = as_utf8(element);
  }
  return copy;
}

}  // namespace

struct ChatFormat::State {
  chat::ChatTemplate chat_template;
  std::string place;
  chat::Value::Variables special_tokens;
};

ChatFormat::ChatFormat(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatFormat::~ChatFormat() = default;
ChatFormat::ChatFormat(ChatFormat&&) noexcept = default;
ChatFormat& ChatFormat::operator=(ChatFormat&&) noexcept = default;

ChatFormat ChatFormat::load(const std::filesystem::path& directory) {
  const std::filesystem::path own_file = directory / kChatTemplateName;
  const std::filesystem::path config_file = directory / kTokenizerConfigName;
  Source source{"", own_file.string()};
  std::optional<std::string> text = read_template(own_file);
  chat::Value::Variables tokens;
  if (path_exists(config_file)) {
    const nlohmann::json json = load_json(config_file, kLargestModelFile);
    const JsonNode config(json, config_file.string());
    config.expect_object();
    for (const std::string_view key : kSpecialTokens) {
      if (auto token = special_token(config, key))
        tokens.emplace(key, chat::Value::of(std::move(*token)));
    }
    if (const auto node = config.find("chat_template"); node && !text) {
      text = template_of(*node);
      source.place = config_file.string() + ": chat_template";
    }
  }
  if (!text) {
    throw InputError(
        "{}: no chat format: there is neither a chat_template.jinja nor a chat_template in "
        "tokenizer_config.json "
        "(a prompt given as plain text needs none)",
        directory.string());
  }
  try {
    return ChatFormat(std::make_unique<const State>(
        State{chat::ChatTemplate(*text), std::move(source.place), std::move(tokens)}));
  } catch (const InputError& error) {
    throw InputError("{}: {} (a prompt given as plain text needs no chat format)", source.place,
                     error.what());
  }
}

std::string ChatFormat::render(const ChatRequest& request) const {
  check_messages(request.messages);
  if (!request.tools.is_null() && !request.tools.is_array()) {
    throw InputError("tools: must be an array, is {}", request.tools.type_name());
  }
  chat::Value::Variables variables = state_->special_tokens;
  variables["messages"] = chat::Value::of(as_utf8(request.messages));
  variables["tools"] = chat::Value::of(as_utf8(request.tools));
  variables["documents"] = chat::Value::of(nullptr);
  variables["add_generation_prompt"] = chat::Value::of(request.add_generation_prompt);
  if (request.enable_thinking)
    variables["enable_thinking"] = chat::Value::of(*request.enable_thinking);
  try {
    return state_->chat_template.render(std::move(variables));
  } catch (const InputError& error) {
    throw InputError("{}: {}", state_->place, error.what());
  }
}

}  // namespace sluice
