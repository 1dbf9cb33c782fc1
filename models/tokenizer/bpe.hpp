// Byte-level byte-pair encoding: the section `model` of a tokenizer file.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json_node.hpp"
#include "models/tokenizer/vocabulary.hpp"

namespace sluice {

class Bpe {
 public:
  // Reads the section. Throws InputError naming what is wrong or not supported. Merges may be spelt "a b" or
  // ["a", "b"]; the later of two equal ones holds, as in the reference.
  static Bpe load(const JsonNode& model);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // What encoding needs beside the model. One per thread.
  class Scratch {
   private:
    friend class Bpe;
    struct Symbol {
      TokenId id;
      std::int32_t previous;
      std::int32_t next;
      bool merged_away;
    };
    struct Candidate {
      std::uint32_t rank;
      std::uint32_t position;
      TokenId merged;
      bool operator>(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : position > other.position;
      }
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    std::unordered_map<std::string_view, std::pair<std::uint32_t, std::uint32_t>> known_;
  };

  // Appends the ids of one piece, as the pre-tokenizer cut it; never quadratic in its length. Pieces that were
  // seen before with the same scratch are copied from `ids`: until the scratch goes, `ids` must only grow, and
  // the bytes of the pieces must stay where they are unless `remember` is false.
  void encode(std::string_view piece, bool remember, Scratch& scratch,
              std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    std::uint64_t pair;  // left id in the upper half, right id in the lower
    std::uint32_t rank;
    TokenId merged;
  };

  void read_vocabulary(const JsonNode& vocab);
  void read_unknown(const JsonNode& model);
  void read_merges(const JsonNode& merges);
  void insert_merge(TokenId left, TokenId right, std::uint32_t rank, TokenId merged);
  const Merge* find_merge(TokenId left, TokenId right) const;
  void split_bytes(std::string_view piece, Scratch& scratch) const;
  void push_candidate(std::size_t position, Scratch& scratch) const;
  void merge_symbols(Scratch& scratch) const;

  Vocabulary vocabulary_;
  std::array<TokenId, 256> byte_ids_{};  // kNoToken where the vocabulary lacks the byte
  std::vector<Merge> merges_;            // open addressing, a power of two
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>
      whole_;  // by bytes, where `ignore_merges`
  bool ignore_merges_ = false;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_ = false;
};

}  // namespace sluice
