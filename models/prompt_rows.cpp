#include "models/prompt_rows.hpp"

#include <algorithm>

namespace sluice {
namespace {

// Enough for the host to prepare a group of prompts while the one before is on its way.
constexpr std::uint32_t kRowUploads = 2;

}  // namespace

void check_token(const ModelConfig& config, std::int32_t token) {
  if (token < 0 || token >= config.vocab)
    throw InputError("there is no token {}: the model's ids are 0 to {}", token, config.vocab - 1);
}

PromptRows::PromptRows(Ops& ops, const ModelConfig& config, DType type, const DecoderLimits& limits,
                       const WorkspaceLayout& work)
    : config_(config),
      type_(type),
      limits_(limits),
      work_(work),
      uploads_(ops, kRowUploads, 3 * std::uint64_t{prefill_rows(limits)} * sizeof(std::int32_t),
               "the rows of prompts") {}

void PromptRows::check(std::span<const std::uint32_t> sequences, Prompts prompts) const {
  if (sequences.empty() || sequences.size() != prompts.size())
    throw Error("a prefill of {} sequences was given {} prompts", sequences.size(), prompts.size());
  for (const auto& prompt : prompts) {
    if (prompt.empty()) throw InputError("a prompt has no tokens; at least one is needed");
    if (prompt.size() > limits_.context)
      throw InputError("a prompt of {} tokens is longer than the context of {}", prompt.size(),
                       limits_.context);
    for (const std::int32_t token : prompt) check_token(config_, token);
  }
}

std::size_t PromptRows::first_group(Prompts prompts) const {
  const std::uint32_t most_rows = prefill_rows(limits_);
  std::size_t end = 0;
  for (std::size_t rows = 0; end < prompts.size(); ++end) {
    rows += prompts[end].size();
    if (rows > most_rows) break;
  }
  return end;
}

RowIndex PromptRows::upload(std::span<const std::uint32_t> sequences, Prompts prompts) {
  std::vector<std::int32_t> tokens, owners, positions;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    tokens.insert(tokens.end(), prompts[i].begin(), prompts[i].end());
    owners.insert(owners.end(), prompts[i].size(), static_cast<std::int32_t>(sequences[i]));
    for (std::size_t at = 0; at < prompts[i].size(); ++at)
      positions.push_back(static_cast<std::int32_t>(at));
  }
  uploads_.send(work_.rows, {std::as_bytes(std::span(tokens)), std::as_bytes(std::span(owners)),
                             std::as_bytes(std::span(positions))});
  const std::size_t count = tokens.size();
  return {.tokens = work_.rows,
          .sequences = work_.rows + count,
          .positions = work_.rows + 2 * count,
          .count = static_cast<std::uint32_t>(count)};
}

std::vector<RowBlock> PromptRows::cut(const RowIndex& rows, Prompts prompts) const {
  std::vector<RowBlock> blocks;
  std::uint32_t row = 0;
  for (const auto& prompt : prompts) {
    const auto length = static_cast<std::uint32_t>(prompt.size());
    for (std::uint32_t at = 0; at < length; at += limits_.prefill_chunk) {
      const std::uint32_t count = std::min(limits_.prefill_chunk, length - at);
      blocks.push_back({.rows = {.tokens = rows.tokens + row,
                                 .sequences = rows.sequences + row,
                                 .positions = rows.positions + row,
                                 .count = count},
                        .first = row,
                        .hidden = hidden_row(row),
                        .consecutive = true,
                        .longest = at + count,
                        .attended = std::uint64_t{count} * at +
                                    std::uint64_t{count} * (count + std::uint64_t{1}) / 2,
                        .cached = at + std::uint64_t{count}});
      row += count;
    }
  }
  return blocks;
}

std::byte* PromptRows::hidden_row(std::uint64_t row) const {
  return work_.hidden + row * static_cast<std::uint64_t>(config_.hidden) * size_of(type_);
}

}  // namespace sluice
