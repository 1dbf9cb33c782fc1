// Prompts on their way through the layers: one row of the hidden states per token, and the pieces
// in which the rows go through a unit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/config.hpp"
#include "models/layer_ops.hpp"
#include "models/uploader.hpp"
#include "models/workspace.hpp"

namespace sluice {

// Of each prompt its tokens.
using Prompts = std::span<const std::span<const std::int32_t>>;

// Throws InputError for an id that the vocabulary does not have.
void check_token(const ModelConfig& config, std::int32_t token);

class PromptRows {
 public:
  // References must outlive this, and the stream must be done before this ends.
  PromptRows(Ops& ops, const ModelConfig& config, DType type, const DecoderLimits& limits,
             const WorkspaceLayout& work);

  // Throws as Decoder::prefill() does.
  void check(std::span<const std::uint32_t> sequences, Prompts prompts) const;
  // How many of the prompts, from the first on, go through the layers together.
  std::size_t first_group(Prompts prompts) const;
  // Uploads one row per token, prompt after prompt.
  RowIndex upload(std::span<const std::uint32_t> sequences, Prompts prompts);
  // Pieces of one prompt each, so that a result depends on its own sequence alone.
  std::vector<RowBlock> cut(const RowIndex& rows, Prompts prompts) const;

 private:
  std::byte* hidden_row(std::uint64_t row) const;

  const ModelConfig& config_;
  const DType type_;
  const DecoderLimits& limits_;
  const WorkspaceLayout& work_;
  Uploader uploads_;
};

}  // namespace sluice
