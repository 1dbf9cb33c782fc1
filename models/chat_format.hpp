// Chat messages to the text of a prompt, by the chat template that comes with a tokenizer.
#pragma once
#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

struct ChatRequest {
  // An array of {"role": text, "content": text, ...}; what else a message may hold (tool_calls,
  // reasoning_content) depends on the template.
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;         // an array, or null
  std::optional<bool> enable_thinking;  // not set: what the template does when it is not told
  bool add_generation_prompt = true;    // ends with the beginning of the answer
};

// Constant once loaded; any number of threads may use one.
class ChatFormat {
 public:
  // Reads chat_template.jinja, or else the key `chat_template` of tokenizer_config.json, in a model's directory.
  // Throws InputError naming the file and the line where there is no template or it is not supported.
  static ChatFormat load(const std::filesystem::path& directory);

  ~ChatFormat();
  ChatFormat(ChatFormat&&) noexcept;
  ChatFormat& operator=(ChatFormat&&) noexcept;

  // Bytes of the request that are not UTF-8 count as U+FFFD, one per maximal invalid subpart. Throws InputError naming
  // the message, or the template's line, where a message is not what it should be.
  std::string render(const ChatRequest& request) const;

 private:
  struct State;
  explicit ChatFormat(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace sluice
