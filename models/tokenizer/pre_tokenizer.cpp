#include "models/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "models/tokenizer/sequence_depth.hpp"
#include "models/tokenizer/unicode.hpp"
#include "models/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// What `ByteLevel` cuts by where it has `use_regex`: the pattern of GPT-2.
const Regex& byte_level_pattern() {
  static const Regex pattern(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  return pattern;
}

}  // namespace

PreTokenizer PreTokenizer::load(const JsonNode& section) {
  PreTokenizer result;
  if (!section.is_null()) result.read(section, 0);
  if (result.stages_.empty() || !std::holds_alternative<ByteLevel>(result.stages_.back())) {
    section.fail("must end with ByteLevel: only byte-level tokenizers are supported");
  }
  return result;
}

void PreTokenizer::read(const JsonNode& section, int depth) {
  const JsonNode type_node = section.at("type");
  const std::string& type = type_node.string();
  if (!stages_.empty() && std::holds_alternative<ByteLevel>(stages_.back()) && type != "Sequence") {
    section.fail("'{}' behind ByteLevel is not supported", type);
  }
  if (type == "Sequence") {
    check_depth(section, depth);
    const JsonNode parts = section.at("pretokenizers");
    for (std::size_t i = 0; i < parts.size(); ++i) read(parts[i], depth + 1);
  } else if (type == "Split") {
    stages_.emplace_back(read_split(section));
  } else if (type == "Digits") {
    stages_.emplace_back(Digits{section.at("individual_digits").boolean()});
  } else if (type == "ByteLevel") {
    stages_.emplace_back(
        ByteLevel{section.at("add_prefix_space").boolean(), section.boolean_or("use_regex", true)});
  } else {
    type_node.fail("'{}' is not supported: Split, Digits, ByteLevel and Sequence are", type);
  }
}

PreTokenizer::Split PreTokenizer::read_split(const JsonNode& section) {
  static constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors = {{
      {"Removed", Behavior::removed},
      {"Isolated", Behavior::isolated},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous},
  }};
  const JsonNode behavior = section.at("behavior");
  const auto* const known =
      std::find_if(kBehaviors.begin(), kBehaviors.end(),
                   [&](const auto& entry) { return entry.first == behavior.string(); });
  if (known == kBehaviors.end()) {
    behavior.fail(
        "'{}' is not known: Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous "
        "are",
        behavior.string());
  }
  const JsonNode pattern = section.at("pattern");
  const auto regex = pattern.find("Regex");
  const auto text = pattern.find("String");
  if (regex.has_value() == text.has_value()) pattern.fail("must hold either 'Regex' or 'String'");
  const bool invert = section.boolean_or("invert", false);
  try {
    return {Regex(regex ? regex->string() : escape_pattern(text->string())), known->second, invert};
  } catch (const InputError& error) {
    pattern.fail("{}", error.what());
  }
}

void PreTokenizer::split(std::string_view text, RegexScratch& scratch, const Sink& sink) const {
  if (!unicode::needs_stand_ins(text)) {
    apply(0, {text, text, PieceOrigin::text}, scratch, sink);
    return;
  }
  const std::string subject = unicode::with_stand_ins(text);
  apply(0, {text, subject, PieceOrigin::text}, scratch, sink);
}

void PreTokenizer::apply(std::size_t stage, Piece piece, RegexScratch& scratch,
                         const Sink& sink) const {
  if (piece.text.empty()) return;
  if (stage == stages_.size()) {
    sink(piece.text, piece.origin);
    return;
  }
  std::visit([&](const auto& of) { run(of, stage + 1, piece, scratch, sink); }, stages_[stage]);
}

void PreTokenizer::run(const Split& stage, std::size_t next, Piece piece, RegexScratch& scratch,
                       const Sink& sink) const {
  std::vector<Span> spans = matches(stage.pattern, piece.subject, scratch);
  if (stage.invert) {
    for (Span& span : spans) span.is_match = !span.is_match;
  }
  for (const Span& span : merge_matches(std::move(spans), stage.behavior)) {
    apply(next, piece.part(span.begin, span.end), scratch, sink);
  }
}

void PreTokenizer::run(const Digits& stage, std::size_t next, Piece piece, RegexScratch& scratch,
                       const Sink& sink) const {
  std::size_t begin = 0;
  bool in_digits = false;
  for (std::size_t at = 0; at < piece.text.size();) {
    const utf8::CodePoint point = utf8::decode(piece.text, at);
    const bool is_digit = unicode::is_numeric(point.value);
    if (is_digit != in_digits || (is_digit && stage.individual)) {
      apply(next, piece.part(begin, at), scratch, sink);
      begin = at;
      in_digits = is_digit;
    }
    at += point.size;
  }
  apply(next, piece.part(begin, piece.text.size()), scratch, sink);
}

void PreTokenizer::run(const ByteLevel& stage, std::size_t next, Piece piece, RegexScratch& scratch,
                       const Sink& sink) const {
  std::string text;
  std::string subject;
  if (stage.add_prefix_space && piece.text.front() != ' ') {
    text.append(1, ' ').append(piece.text);
    subject.append(1, ' ').append(piece.subject);
    piece = {text, subject, PieceOrigin::copy};
  }
  if (!stage.use_regex) {
    apply(next, piece, scratch, sink);
    return;
  }
  for (const Span& span : matches(byte_level_pattern(), piece.subject, scratch)) {
    apply(next, piece.part(span.begin, span.end), scratch, sink);
  }
}

// The matches and what lies between them, covering the subject.
std::vector<PreTokenizer::Span> PreTokenizer::matches(const Regex& pattern,
                                                      std::string_view subject,
                                                      RegexScratch& scratch) {
  std::vector<Span> spans;
  std::size_t covered = 0;
  std::size_t from = 0;
  Regex::Match match{};
  while (from <= subject.size() && pattern.search(subject, from, scratch, match)) {
    // An empty match right behind the match before it does not count.
    if (match.begin == match.end && !spans.empty() && match.end == covered) {
      from += from < subject.size() ? utf8::decode(subject, from).size : 1;
      continue;
    }
    if (covered != match.begin) spans.push_back({covered, match.begin, false});
    spans.push_back({match.begin, match.end, true});
    covered = match.end;
    from = match.end;
  }
  if (covered != subject.size()) spans.push_back({covered, subject.size(), false});
  return spans;
}

std::vector<PreTokenizer::Span> PreTokenizer::merge_matches(std::vector<Span> spans,
                                                            Behavior behavior) {
  if (behavior == Behavior::isolated) return spans;
  if (behavior == Behavior::removed) {
    std::erase_if(spans, [](const Span& span) { return span.is_match; });
    return spans;
  }
  const bool backwards = behavior == Behavior::merged_with_next;
  if (backwards) std::reverse(spans.begin(), spans.end());
  std::vector<Span> merged;
  bool previous = false;
  for (const Span& span : spans) {
    const bool joins =
        behavior == Behavior::contiguous ? span.is_match == previous : span.is_match && !previous;
    previous = span.is_match;
    if (!joins || merged.empty()) {
      merged.push_back(span);
    } else if (backwards) {
      merged.back().begin = span.begin;
    } else {
      merged.back().end = span.end;
    }
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  return merged;
}

}  // namespace sluice
