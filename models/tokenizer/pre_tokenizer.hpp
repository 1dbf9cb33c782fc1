// How a text is cut into the pieces that BPE encodes: the section `pre_tokenizer` of a tokenizer file.
#pragma once
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json_node.hpp"
#include "models/tokenizer/regex.hpp"

namespace sluice {

// Where a piece's bytes are.
enum class PieceOrigin {
  text,
  copy
};  // in the text that was given, or in a buffer that goes after the call

class PreTokenizer {
 public:
  // Reads the section: `Split`, `Digits` and, last, `ByteLevel`, alone or in a `Sequence`. Throws InputError
  // naming what is wrong or not supported.
  static PreTokenizer load(const JsonNode& section);

  // Calls sink(piece, origin) for each piece, in order, none of them empty. `text` is valid UTF-8; pieces may
  // end within a code point never.
  using Sink = std::function<void(std::string_view, PieceOrigin)>;
  void split(std::string_view text, RegexScratch& scratch, const Sink& sink) const;

 private:
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  struct Split {
    Regex pattern;
    Behavior behavior;
    bool invert;
  };
  struct Digits {
    bool individual;
  };
  struct ByteLevel {
    bool add_prefix_space;
    bool use_regex;
  };
  using Stage = std::variant<Split, Digits, ByteLevel>;

  // A stretch of a text, with the subject that patterns are matched on (see unicode::with_stand_ins).
  struct Piece {
    std::string_view text;
    std::string_view subject;
    PieceOrigin origin;
    Piece part(std::size_t begin, std::size_t end) const {
      return {text.substr(begin, end - begin), subject.substr(begin, end - begin), origin};
    }
  };
  struct Span {
    std::size_t begin;
    std::size_t end;
    bool is_match;
  };

  void read(const JsonNode& section, int depth);
  static Split read_split(const JsonNode& section);

  void apply(std::size_t stage, Piece piece, RegexScratch& scratch, const Sink& sink) const;
  void run(const Split& stage, std::size_t next, Piece piece, RegexScratch& scratch,
           const Sink& sink) const;
  void run(const Digits& stage, std::size_t next, Piece piece, RegexScratch& scratch,
           const Sink& sink) const;
  void run(const ByteLevel& stage, std::size_t next, Piece piece, RegexScratch& scratch,
           const Sink& sink) const;

  static std::vector<Span> matches(const Regex& pattern, std::string_view subject,
                                   RegexScratch& scratch);
  static std::vector<Span> merge_matches(std::vector<Span> spans, Behavior behavior);

  std::vector<Stage> stages_;
};

}  // namespace sluice
