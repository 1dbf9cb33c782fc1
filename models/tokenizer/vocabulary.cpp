#include "models/tokenizer/vocabulary.hpp"

#include <utility>

namespace sluice {

void Vocabulary::reserve(std::size_t tokens) {
  ids_.reserve(tokens);
  tokens_.reserve(tokens);
}

bool Vocabulary::add(std::string token, TokenId id) {
  const auto row = static_cast<std::size_t>(id);
  if (row < tokens_.size() && tokens_[row] != nullptr) return false;
  const auto [entry, added] = ids_.emplace(std::move(token), id);
  if (!added) return false;
  if (row >= tokens_.size()) tokens_.resize(row + 1, nullptr);
  tokens_[row] = &entry->first;
  return true;
}

std::optional<TokenId> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token_of(TokenId id) const {
  const auto row = static_cast<std::size_t>(id);
  return id >= 0 && row < tokens_.size() ? tokens_[row] : nullptr;
}

}  // namespace sluice
