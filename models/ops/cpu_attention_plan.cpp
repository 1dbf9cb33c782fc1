#include "models/ops/cpu_attention_plan.hpp"

#include <algorithm>

namespace sluice::cpu {

RowPlan::RowPlan(const RowIndex& rows, std::size_t most, std::size_t kv_heads) {
  for (std::size_t r = 0; r < rows.count; ++r) {
    if (blocks_.empty() || blocks_.back().sequence != rows.sequences[r] ||
        blocks_.back().count == most) {
      blocks_.push_back({r, 0, rows.sequences[r], 0});
    }
    RowBlock& block = blocks_.back();
    ++block.count;
    block.furthest = std::max(block.furthest, static_cast<std::size_t>(rows.positions[r]));
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    for (std::size_t h = 0; h < kv_heads; ++h) {
      for (std::size_t s = 0; s < blocks_[b].spans(); ++s) spans_.push_back({b, h, s});
    }
  }
}

RowPlan::~RowPlan() = default;

const RowBlock* RowPlan::blocks() const { return blocks_.data(); }
std::size_t RowPlan::block_count() const { return blocks_.size(); }
const SpanTask* RowPlan::spans() const { return spans_.data(); }
std::size_t RowPlan::span_count() const { return spans_.size(); }

}  // namespace sluice::cpu
