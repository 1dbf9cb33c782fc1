// A chat template: whatever the bytes, it renders a chat or is refused with InputError.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "models/chat/chat_template.hpp"
#include "models/tokenizer/utf8.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto messages = sluice::chat::Json::parse(R"([
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi \u00e9"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes", "tool_calls": [
      {"function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]},
    {"role": "tool", "content": "7"}])");
  const std::string source =
      sluice::utf8::replace_invalid({reinterpret_cast<const char*>(data), size});
  sluice::chat::Value::Variables variables;
  variables["messages"] = sluice::chat::Value::borrowed(messages);
  variables["tools"] = sluice::chat::Value::of(nullptr);
  variables["add_generation_prompt"] = sluice::chat::Value::of(true);
  try {
    sluice::chat::ChatTemplate(source).render(std::move(variables));
  } catch (const sluice::InputError&) {
    // Refused, which is an answer.
  }
  return 0;
}
