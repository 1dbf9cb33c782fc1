#include "models/ops/cpu_targets.hpp"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/ops/cpu_attention.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "core/parallel.hpp"
#include "models/ops/cpu_attention-inl.hpp"
#include "models/ops/cpu_kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// Queries of a block of rows: what shares a span's converted keys and values.
constexpr std::size_t kBlockQueries = 48;
// Spans are computed side by side only where all their parts are not more than this.
constexpr std::size_t kMostPartFloats = std::size_t{4} << 20;

// Each block and head is one task, which walks the spans.
template <class T>
void by_head(const AttentionArgs& args, const RowBlock* blocks, std::size_t count) {
  const std::size_t heads = args.kv.kv_heads;
  parallel_for(count * heads, [&](std::size_t task) HWY_ATTR {
    const RowBlock& rows = blocks[task / heads];
    Head<T> head(args, rows, task % heads);
    const std::size_t floats = Head<T>::parts_floats(args, rows);
    float* parts = scratch(Scratch::partials, floats);
    float* state = scratch(Scratch::states, floats);
    for (std::size_t span = 0; span < rows.spans(); ++span) {
      head.attend(span, parts);
      head.merge(span, parts, state);
    }
    head.store(state);
  });
}

// Each span is a task, whose parts are merged afterwards. `spans` lists them by block, then head.
template <class T>
void by_span(const AttentionArgs& args, const RowBlock* blocks, const SpanTask* spans,
             std::size_t count, std::size_t most_floats) {
  float* parts = scratch(Scratch::side_by_side, count * most_floats);
  parallel_for(count, [&](std::size_t task) HWY_ATTR {
    const SpanTask& at = spans[task];
    Head<T>(args, blocks[at.block], at.head).attend(at.span, parts + task * most_floats);
  });
  parallel_for(count, [&](std::size_t task) HWY_ATTR {
    const SpanTask& at = spans[task];
    if (at.span != 0) return;
    const RowBlock& rows = blocks[at.block];
    Head<T> head(args, rows, at.head);
    float* state = scratch(Scratch::states, most_floats);
    for (std::size_t span = 0; span < rows.spans(); ++span) {
      head.merge(span, parts + (task + span) * most_floats, state);
    }
    head.store(state);
  });
}

template <class T>
void attention_as(const AttentionArgs& args) {
  const std::size_t group = args.heads / args.kv.kv_heads;
  const RowPlan plan(args.rows, HWY_MAX(std::size_t{1}, kBlockQueries / group), args.kv.kv_heads);
  std::size_t most = 0;
  for (std::size_t b = 0; b < plan.block_count(); ++b) {
    most = HWY_MAX(most, Head<T>::parts_floats(args, plan.blocks()[b]));
  }
  const bool few = plan.block_count() * args.kv.kv_heads < 4 * thread_count();
  if (few && plan.span_count() * most <= kMostPartFloats) {
    by_span<T>(args, plan.blocks(), plan.spans(), plan.span_count(), most);
  } else {
    by_head<T>(args, plan.blocks(), plan.block_count());
  }
}

void attention(const AttentionArgs& args) {
  switch (args.type) {
    case DType::f32: return attention_as<float>(args);
    case DType::bf16: return attention_as<Bf16>(args);
    case DType::f16: return attention_as<F16>(args);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(attention);

void attention(const AttentionArgs& args) { HWY_DYNAMIC_DISPATCH(attention)(args); }

}  // namespace sluice::cpu
#endif
