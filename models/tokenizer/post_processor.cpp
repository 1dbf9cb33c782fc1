#include "models/tokenizer/post_processor.hpp"

#include <string>

#include "models/tokenizer/sequence_depth.hpp"

namespace sluice {
namespace {

// The ids of one piece of a template, which the file lists apart under the piece's name.
void append_special(const JsonNode& piece, const JsonNode& section, std::vector<TokenId>& ids) {
  const std::string& name = piece.at("id").string();
  const JsonNode listed = section.at("special_tokens").at(name).at("ids");
  for (std::size_t i = 0; i < listed.size(); ++i) {
    ids.push_back(static_cast<TokenId>(listed[i].integer(0, kLargestTokenId)));
  }
}

void read_template(const JsonNode& section, PostProcessor& result) {
  std::vector<TokenId> before;
  std::vector<TokenId> behind;
  bool has_text = false;
  const JsonNode single = section.at("single");
  for (std::size_t i = 0; i < single.size(); ++i) {
    const JsonNode piece = single[i];
    if (const auto special = piece.find("SpecialToken")) {
      append_special(*special, section, has_text ? behind : before);
    } else if (const auto text = piece.find("Sequence")) {
      if (has_text) piece.fail("the text comes twice, which is not supported");
      has_text = true;
    } else {
      piece.fail("must hold 'SpecialToken' or 'Sequence'");
    }
  }
  if (!has_text) single.fail("the text ('Sequence') is missing");
  result.before.insert(result.before.begin(), before.begin(), before.end());
  result.behind.insert(result.behind.end(), behind.begin(), behind.end());
}

void read(const JsonNode& section, int depth, PostProcessor& result) {
  const JsonNode type = section.at("type");
  if (type.string() == "Sequence") {
    check_depth(section, depth);
    const JsonNode parts = section.at("processors");
    for (std::size_t i = 0; i < parts.size(); ++i) read(parts[i], depth + 1, result);
  } else if (type.string() == "TemplateProcessing") {
    read_template(section, result);
  } else if (type.string() != "ByteLevel") {
    type.fail("'{}' is not supported: ByteLevel, TemplateProcessing and Sequence are",
              type.string());
  }
}

}  // namespace

PostProcessor PostProcessor::load(const JsonNode& section) {
  PostProcessor result;
  if (!section.is_null()) read(section, 0, result);
  return result;
}

}  // namespace sluice
