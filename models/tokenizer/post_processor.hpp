// What is put around a text's tokens: the section `post_processor` of a tokenizer file.
#pragma once
#include <vector>

#include "core/json_node.hpp"
#include "models/tokenizer/vocabulary.hpp"

namespace sluice {

struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> behind;

  // Reads `ByteLevel` (which adds nothing), `TemplateProcessing` and `Sequence`. Throws InputError naming what
  // is wrong or not supported.
  static PostProcessor load(const JsonNode& section);
};

}  // namespace sluice
