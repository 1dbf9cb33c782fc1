#include "harness/evaluation.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace sluice {
namespace {

using Ids = std::vector<std::int32_t>;

// What the tokenizer puts before any text.
Ids put_before(const Tokenizer& tokenizer) {
  constexpr std::string_view kSome = "a";
  const Ids plain = tokenizer.encode(kSome), whole = tokenizer.encode(kSome, true);
  return {whole.begin(), std::search(whole.begin(), whole.end(), plain.begin(), plain.end())};
}

// Hands out the logits after which a token is predicted, with those tokens.
class Scored {
 public:
  Scored(const Window& window, std::uint64_t row_bytes) : window_(window), row_bytes_(row_bytes) {}

  struct Rows {
    std::span<const std::byte> values;
    std::span<const std::int32_t> next;
    std::size_t first = 0;  // among the window's scored ones
  };
  Rows of(const LogitRows& rows) const {
    const std::uint32_t before = window_.given - 1;
    const std::uint32_t skipped =
        rows.first >= before ? 0 : std::min(before - rows.first, rows.count);
    const std::uint32_t first = rows.first + skipped;
    return {rows.values.subspan(skipped * row_bytes_),
            std::span(window_.ids).subspan(first + 1, rows.count - skipped), first - before};
  }

 private:
  const Window& window_;
  std::uint64_t row_bytes_;
};

}  // namespace

std::vector<Window> cut_windows(const Model& model, std::string_view text, std::uint32_t context,
                                std::uint64_t most, const std::string& what) {
  if (text.empty()) throw InputError("{}: the file is empty; there is nothing to score", what);
  Ids ids = model.text().encode(text);
  ids.resize(std::min<std::uint64_t>(ids.size(), most));
  for (const std::int32_t id : ids)
    if (id >= model.source.config.vocab)
      throw InputError("{}: the token id {} is not one of {}, whose ids are 0 to {}", what, id,
                       model.name, model.source.config.vocab - 1);

  const Ids before = put_before(model.text());
  const auto given = static_cast<std::uint32_t>(std::max<std::size_t>(before.size(), 1));
  if (context <= given)
    throw InputError(
        "a context of {} predicts nothing: {} before the first predicted token, so at least {}",
        context, given == 1 ? "one token comes" : fmt::format("{} tokens come", given), given + 1);
  std::vector<Window> out;
  const std::size_t stretch = context - before.size();
  for (std::size_t at = 0; at < ids.size(); at += stretch) {
    Window window{before, given};
    const std::size_t end = std::min(at + stretch, ids.size());
    window.ids.insert(window.ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(at),
                      ids.begin() + static_cast<std::ptrdiff_t>(end));
    if (window.ids.size() > given) out.push_back(std::move(window));
  }
  if (out.empty())
    throw InputError("{}: {} token{} of it; at least {} to predict one after another", what,
                     ids.size(), ids.size() == 1 ? "" : "s", given + 1 - before.size());
  return out;
}

Evaluation evaluate(std::span<const Window> windows, Session* reference, Session& tested,
                    DType type, std::uint32_t vocab,
                    const std::function<void(std::uint64_t)>& progress) {
  Evaluation out;
  if (reference) out.reference.emplace();
  const std::uint64_t row_bytes = vocab * size_of(type);
  std::vector<std::byte> kept;  // the reference's rows of a window
  for (const Window& window : windows) {
    const bool last = &window == &windows.back();
    const Scored scored(window, row_bytes);
    kept.resize(reference ? window.scored() * row_bytes : 0);
    if (reference)
      reference->score(window.fed(), last, [&](const LogitRows& all) {
        const Scored::Rows rows = scored.of(all);
        add_quality(*out.reference, {rows.values, type, vocab}, rows.next);
        std::copy(rows.values.begin(), rows.values.end(), kept.data() + rows.first * row_bytes);
      });
    tested.score(window.fed(), last, [&](const LogitRows& all) {
      const Scored::Rows rows = scored.of(all);
      const Logits logits{rows.values, type, vocab};
      add_quality(out.tested, logits, rows.next);
      if (reference)
        add_divergence(
            out.divergence,
            {std::span(kept).subspan(rows.first * row_bytes, rows.values.size()), type, vocab},
            logits);
      progress(out.tested.tokens);
    });
  }
  return out;
}

}  // namespace sluice
