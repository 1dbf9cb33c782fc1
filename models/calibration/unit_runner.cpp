#include "models/calibration/unit_runner.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "models/rope.hpp"

namespace sluice {
namespace {

DecoderLimits limits_of(std::uint32_t window) {
  return {.context = window, .prefill_chunk = window, .prefill_rows = window};
}

}  // namespace

UnitRunner::UnitRunner(IDevice& device, const ModelConfig& config, const WeightStore& weights,
                       DType type, std::uint32_t window, LinearObserver observer)
    : weights_(weights),
      window_(window),
      row_bytes_(static_cast<std::uint64_t>(config.hidden) * size_of(type)),
      ops_(device, device.make_stream(Resource::compute, "calibration"),
           observe(make_kernels(device), std::move(observer))),
      pages_(1, window),
      cache_(device, config, type, pages_),
      memory_(device, Buffer::Where::device,
              lay_out_workspace(nullptr, config, type, limits_of(window)).bytes,
              "the calibration's workspace"),
      work_(lay_out_workspace(memory_.data(), config, type, limits_of(window))),
      layers_(ops_, config, weights, type, window, work_, cache_) {
  const auto head_dim = static_cast<std::uint32_t>(config.head_dim);
  const std::size_t angles = std::size_t{window} * (head_dim / 2);
  fill_rope_tables(config.rope, head_dim, window, {work_.cos, angles}, {work_.sin, angles});
  pages_.reserve(0, window);
  std::ranges::copy(pages_.entries(), work_.page_table);
  // Tokens, sequences, positions.
  std::fill_n(work_.rows, 2 * std::size_t{window}, 0);
  std::iota(work_.rows + 2 * std::size_t{window}, work_.rows + 3 * std::size_t{window}, 0);
}

void UnitRunner::embed(std::span<const std::int32_t> tokens, std::byte* hidden) {
  std::ranges::copy(tokens, work_.rows);
  const RowBlock rows = block(static_cast<std::uint32_t>(tokens.size()));
  layers_.embed(rows);
  finish(rows, hidden);
}

void UnitRunner::run(UnitId unit, Encoding encoding, const std::byte* slab, std::byte* hidden,
                     std::uint32_t rows) {
  const RowBlock some = block(rows);
  std::memcpy(some.hidden, hidden, rows * row_bytes_);
  const std::uint64_t bytes = weights_.layout().units()[unit].size(encoding);
  const Weights weights{slab, range_of(slab, bytes), encoding};
  if (layers_.is_attention(unit))
    layers_.attention(unit, weights, some);
  else
    layers_.mlp(unit, weights, some);
  finish(some, hidden);
}

RowBlock UnitRunner::block(std::uint32_t rows) const {
  return {.rows = {.tokens = work_.rows,
                   .sequences = work_.rows + window_,
                   .positions = work_.rows + 2 * std::size_t{window_},
                   .count = rows},
          .hidden = work_.hidden,
          .consecutive = true,
          .longest = rows,
          .attended = std::uint64_t{rows} * (rows + std::uint64_t{1}) / 2,
          .cached = rows};
}

void UnitRunner::finish(const RowBlock& block, std::byte* hidden) {
  ops_.device().sync(ops_.device().record(ops_.stream()));
  std::memcpy(hidden, block.hidden, block.rows.count * row_bytes_);
}

}  // namespace sluice
