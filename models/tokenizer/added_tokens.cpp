#include "models/tokenizer/added_tokens.hpp"

#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() &&
         unicode::is_word(utf8::decode(text, utf8::previous(text, text.size())).value);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && unicode::is_word(utf8::decode(text, 0).value);
}

std::size_t before_white_space(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t begin = utf8::previous(text, end);
    if (!unicode::is_white_space(utf8::decode(text, begin).value)) break;
    end = begin;
  }
  return end;
}

std::size_t behind_white_space(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const utf8::CodePoint point = utf8::decode(text, begin);
    if (!unicode::is_white_space(point.value)) break;
    begin += point.size;
  }
  return begin;
}

}  // namespace

std::vector<AddedToken> load_added_tokens(const JsonNode& section, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string_view, std::size_t> seen;
  std::size_t next_free = vocabulary.count();
  const std::size_t count = section.size();
  tokens.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonNode entry = section[i];
    AddedToken token;
    token.id = static_cast<TokenId>(entry.at("id").integer(0, kLargestTokenId));
    token.content = entry.at("content").string();
    token.single_word = entry.boolean_or("single_word", false);
    token.lstrip = entry.boolean_or("lstrip", false);
    token.rstrip = entry.boolean_or("rstrip", false);
    token.special = entry.boolean_or("special", false);
    token.normalized = entry.boolean_or("normalized", !token.special);
    if (token.content.empty()) entry.fail("an empty token");
    const auto known = vocabulary.id_of(token.content);
    const std::size_t expected = known ? static_cast<std::size_t>(*known) : next_free++;
    if (static_cast<std::size_t>(token.id) != expected) {
      entry.fail("the token '{}' has the id {}, but {} {}", token.content, token.id,
                 known ? "the vocabulary says" : "the next free one is", expected);
    }
    if (!known && vocabulary.token_of(token.id) != nullptr) {
      entry.fail("the token '{}' has the id {} of '{}'", token.content, token.id,
                 *vocabulary.token_of(token.id));
    }
    tokens.push_back(std::move(token));
    const auto [first, added] = seen.emplace(tokens.back().content, i);
    if (!added)
      entry.fail("the token '{}' is in added_tokens[{}] already", first->first, first->second);
  }
  return tokens;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  std::size_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (node == 0) starts_[byte] = true;
    const auto [child, added] =
        children_.emplace(std::uint64_t{node} << 8 | byte, token_at_.size());
    if (added) token_at_.push_back(kNoToken);
    node = child->second;
  }
  if (token_at_[node] != kNoToken) return;
  token_at_[node] = tokens_.size();
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
}

bool AddedTokenMatcher::match_at(std::string_view text, std::size_t at, Match& match) const {
  if (!starts_[static_cast<std::uint8_t>(text[at])]) return false;
  bool found = false;
  std::size_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto child =
        children_.find(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (token_at_[node] != kNoToken) {
      match = {token_at_[node], i + 1};
      found = true;
    }
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text,
                              const std::function<void(std::string_view)>& on_text,
                              const std::function<void(TokenId)>& on_token) const {
  std::size_t covered = 0;
  Match match{};
  for (std::size_t at = 0; at < text.size();) {
    if (!match_at(text, at, match)) {
      ++at;
      continue;
    }
    const Rule& rule = tokens_[match.token];
    std::size_t begin = at;
    std::size_t end = match.end;
    at = match.end;
    if (rule.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    // It may begin in white space that the token before took; it counts all the same.
    if (rule.lstrip) begin = before_white_space(text, begin);
    if (rule.rstrip) end = behind_white_space(text, end);
    if (covered < begin) on_text(text.substr(covered, begin - covered));
    on_token(rule.id);
    covered = end;
  }
  if (covered < text.size()) on_text(text.substr(covered));
}

}  // namespace sluice
