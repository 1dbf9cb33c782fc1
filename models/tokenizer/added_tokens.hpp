// Tokens that are found in a text before it is cut and merged: the section `added_tokens` of a tokenizer file.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json_node.hpp"
#include "models/tokenizer/vocabulary.hpp"

namespace sluice {

struct AddedToken {
  TokenId id;
  std::string content;
  bool single_word;  // only where no word character stands beside it
  bool lstrip;       // takes the white space before it
  bool rstrip;       // takes the white space behind it
  bool normalized;   // looked for in the normalised text
  bool special;
};

// Reads the section, in its order. An id must be the one that `vocabulary` gives the content, or else the next
// free one, since the reference goes by that and not by the file. Throws InputError.
std::vector<AddedToken> load_added_tokens(const JsonNode& section, const Vocabulary& vocabulary);

// Finds some added tokens in a text: leftmost first, of those the longest.
class AddedTokenMatcher {
 public:
  void add(const AddedToken& token,
           std::string_view pattern);  // `pattern` not empty; an equal one before it wins
  bool empty() const { return tokens_.empty(); }

  // Calls on_text(stretch) and on_token(id) in the order of the text. `text` is valid UTF-8.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_text,
             const std::function<void(TokenId)>& on_token) const;

 private:
  struct Match {
    std::size_t token;
    std::size_t end;
  };
  bool match_at(std::string_view text, std::size_t at, Match& match) const;

  struct Rule {
    TokenId id;
    bool single_word;
    bool lstrip;
    bool rstrip;
  };
  static constexpr std::size_t kNoToken = static_cast<std::size_t>(-1);
  std::vector<Rule> tokens_;
  std::array<bool, 256> starts_{};  // bytes that a pattern begins with
  // A trie: the child of node n for byte b is children_[n << 8 | b], the root is node 0.
  std::unordered_map<std::uint64_t, std::size_t> children_;
  std::vector<std::size_t> token_at_{kNoToken};
};

}  // namespace sluice
