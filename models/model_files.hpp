// The files of a model's directory beside its weights.
#pragma once
#include <cstdint>

namespace sluice {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kGenerationConfigName = "generation_config.json";
inline constexpr const char* kTokenizerName = "tokenizer.json";
inline constexpr const char* kTokenizerConfigName = "tokenizer_config.json";
inline constexpr const char* kChatTemplateName = "chat_template.jinja";

// The most that is read of one. A vocabulary with its merges is the largest by far.
inline constexpr std::uint64_t kLargestModelFile = 16ull << 20;
inline constexpr std::uint64_t kLargestTokenizer = 512ull << 20;

}  // namespace sluice
