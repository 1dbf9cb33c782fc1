// The tokens of a tokenizer file and their ids, both ways.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

using TokenId = std::int32_t;

// Beyond any real vocabulary; keeps a hostile id from reserving memory for all ids below it.
inline constexpr std::size_t kLargestTokenId = (std::size_t{1} << 22) - 1;

// For maps from strings that are searched with string views.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

class Vocabulary {
 public:
  void reserve(std::size_t tokens);

  // False, with nothing changed, where the id or the token is there already. id <= kLargestTokenId.
  bool add(std::string token, TokenId id);

  std::optional<TokenId> id_of(std::string_view token) const;
  const std::string* token_of(TokenId id) const;  // null where no token has the id

  std::size_t count() const { return ids_.size(); }
  std::size_t id_limit() const { return tokens_.size(); }  // one beyond the largest id

 private:
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  // keys of ids_, whose nodes do not move
};

}  // namespace sluice
