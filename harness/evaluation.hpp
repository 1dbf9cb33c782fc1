// A text in windows, and what weights make of it beside others.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/quality.hpp"
#include "harness/session.hpp"

namespace sluice {

// The next stretch of the text's tokens, without overlap; before each of them what the tokenizer puts
// before any text (a bos token, or nothing).
struct Window {
  std::vector<std::int32_t> ids;
  std::uint32_t given = 1;  // tokens at the start that are not predicted

  // All but the last, after which nothing is known.
  std::span<const std::int32_t> fed() const { return std::span(ids).first(ids.size() - 1); }
  std::size_t scored() const { return ids.size() - given; }
};

// Windows of up to `context` positions over the first `most` tokens of `text`; one at the end in which
// nothing would be predicted is left out. Throws InputError for a context too short to predict
// anything, and a text with nothing to predict. `what` names the text in errors.
std::vector<Window> cut_windows(const Model& model, std::string_view text, std::uint32_t context,
                                std::uint64_t most, const std::string& what);

struct Evaluation {
  Quality tested;
  // With a reference:
  std::optional<Quality> reference;
  Divergence divergence;
};

// Rows of logits at once: as many as every device computes with the same bits as one alone.
inline constexpr std::uint32_t kScoredRows = 16;

// Takes every window through `tested`, and through `reference` before (null: none), whose logits of
// one window are kept in host memory. Both have logits of `type`. `progress` gets the tokens scored
// so far.
Evaluation evaluate(std::span<const Window> windows, Session* reference, Session& tested,
                    DType type, std::uint32_t vocab,
                    const std::function<void(std::uint64_t)>& progress);

}  // namespace sluice
