// How attention's rows are cut into work. No templates here, nor in what it offers: see
// core/parallel.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/ops/kernels.hpp"

namespace sluice::cpu {

// Positions that are summed up on their own before they are merged: what the results depend on.
inline constexpr std::size_t kSpan = 256;
static_assert(kSpan % kPageTokens == 0);

// Consecutive rows of one sequence, which read the same keys and values.
struct RowBlock {
  std::size_t first = 0, count = 0;
  std::int32_t sequence = 0;
  std::size_t furthest = 0;  // of their positions

  std::size_t spans() const { return furthest / kSpan + 1; }
};

// One block, one head of keys, one span.
struct SpanTask {
  std::size_t block = 0, head = 0, span = 0;
};

class RowPlan {
 public:
  // Blocks of at most `most` rows.
  RowPlan(const RowIndex& rows, std::size_t most, std::size_t kv_heads);
  ~RowPlan();
  RowPlan(const RowPlan&) = delete;
  RowPlan& operator=(const RowPlan&) = delete;

  const RowBlock* blocks() const;
  std::size_t block_count() const;
  const SpanTask* spans() const;  // by block, then by head
  std::size_t span_count() const;

 private:
  std::vector<RowBlock> blocks_;
  std::vector<SpanTask> spans_;
};

}  // namespace sluice::cpu
