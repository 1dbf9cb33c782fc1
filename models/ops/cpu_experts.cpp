#include "models/ops/cpu_targets.hpp"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/ops/cpu_experts.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>

#include "models/ops/cpu_kernels.hpp"
#include "models/ops/cpu_rows-inl.hpp"
#include "models/ops/cpu_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// ---- route

// to[i] = e^(scores[i] - the largest) / their sum; `to` has room for a vector more.
template <class T>
HWY_INLINE void softmax(const T* scores, std::size_t count, float* to) {
  float largest = cpu::widen(scores[0]);
  for (std::size_t i = 1; i < count; ++i) largest = HWY_MAX(largest, cpu::widen(scores[i]));
  V sums = hn::Zero(D());
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i;
    V e = exp(hn::Sub(widen_some(scores + i, left), hn::Set(D(), largest)));
    if (left < kLanes) e = hn::IfThenElseZero(hn::FirstN(D(), left), e);
    hn::StoreU(e, D(), to + i);
    sums = hn::Add(sums, e);
  }
  const V sum = hn::Set(D(), sum_of_lanes(sums));
  for (std::size_t i = 0; i < count; i += kLanes)
    hn::StoreU(hn::Div(hn::LoadU(D(), to + i), sum), D(), to + i);
}

// The best first. Where scores are not numbers, some ids all the same: each is there once.
HWY_INLINE void choose_best(const float* values, const RouteArgs& args, std::int32_t* ids) {
  bool taken[kMaxExperts] = {};
  for (std::size_t k = 0; k < args.per_token; ++k) {
    std::size_t best = args.experts;
    for (std::size_t i = 0; i < args.experts; ++i)
      if (!taken[i] && (best == args.experts || values[i] > values[best])) best = i;
    taken[best] = true;
    ids[k] = static_cast<std::int32_t>(best);
  }
}

template <class T>
void route_as(const RouteArgs& args) {
  for_rows(args.rows, args.experts, [&](std::size_t r) HWY_ATTR {
    float values[kMaxExperts + kLanes];
    softmax(static_cast<const T*>(args.scores) + r * args.experts, args.experts, values);
    const std::size_t first = r * args.per_token;
    std::int32_t* const ids = args.ids + first;
    if (args.given)
      std::copy_n(args.given + first, args.per_token, ids);
    else
      choose_best(values, args, ids);
    float sum = args.normalise ? 0.0f : 1.0f;
    for (std::size_t k = 0; args.normalise && k < args.per_token; ++k) sum += values[ids[k]];
    std::sort(ids, ids + args.per_token);
    float* const weights = args.weights + first;
    for (std::size_t k = 0; k < args.per_token; ++k)
      weights[k] = hn::GetLane(rounded<T>(hn::Set(D(), values[ids[k]] / sum)));
    if (args.host_ids) std::copy_n(ids, args.per_token, args.host_ids + first);
    if (args.host_weights) std::copy_n(weights, args.per_token, args.host_weights + first);
    if (args.done) __atomic_store_n(args.done + r, args.done_value, __ATOMIC_RELEASE);
  });
}

void route(const RouteArgs& args) {
  switch (args.type) {
    case DType::f32: return route_as<float>(args);
    case DType::bf16: return route_as<Bf16>(args);
    case DType::f16: return route_as<F16>(args);
  }
}

// ---- sums of experts' results

template <class T>
HWY_INLINE V weighted(float weight, V y) {
  return rounded<T>(hn::Mul(hn::Set(D(), weight), y));
}

// residual = round(residual + round(sum)) of up to a vector's elements.
template <class T>
HWY_INLINE void add_to_residual(V sum, T* residual, std::size_t left) {
  narrow_some(hn::Add(widen_some(residual, left), rounded<T>(sum)), residual, left);
}

template <class T>
void combine_as(const CombineArgs& args) {
  for_rows(args.rows, std::size_t{args.per_token} * args.hidden, [&](std::size_t r) HWY_ATTR {
    const std::size_t first = r * args.per_token;
    const T* const pairs = static_cast<const T*>(args.pairs) + first * args.hidden;
    T* const residual = static_cast<T*>(args.residual) + r * args.hidden;
    for (std::size_t i = 0; i < args.hidden; i += kLanes) {
      const std::size_t left = args.hidden - i;
      V sum = hn::Zero(D());
      for (std::size_t k = 0; k < args.per_token; ++k)
        sum = hn::Add(sum, weighted<T>(args.weights[first + k],
                                       widen_some(pairs + k * args.hidden + i, left)));
      add_to_residual(sum, residual + i, left);
    }
  });
}

void combine(const CombineArgs& args) {
  switch (args.type) {
    case DType::f32: return combine_as<float>(args);
    case DType::bf16: return combine_as<Bf16>(args);
    case DType::f16: return combine_as<F16>(args);
  }
}

template <class T>
void add_rows_as(const AddRowsArgs& args) {
  for_rows(args.count, args.hidden, [&](std::size_t p) HWY_ATTR {
    const auto pair = static_cast<std::size_t>(args.pairs[p]);
    const T* const y = static_cast<const T*>(args.y) + p * args.hidden;
    float* const sums = args.sums + pair / args.per_token * args.hidden;
    for (std::size_t i = 0; i < args.hidden; i += kLanes) {
      const std::size_t left = args.hidden - i;
      const V product = weighted<T>(args.weights[pair], widen_some(y + i, left));
      narrow_some(hn::Add(widen_some(sums + i, left), product), sums + i, left);
    }
  });
}

void add_rows(const AddRowsArgs& args) {
  switch (args.type) {
    case DType::f32: return add_rows_as<float>(args);
    case DType::bf16: return add_rows_as<Bf16>(args);
    case DType::f16: return add_rows_as<F16>(args);
  }
}

template <class T>
void add_sums_as(const AddSumsArgs& args) {
  for_rows(args.rows, args.hidden, [&](std::size_t r) HWY_ATTR {
    const float* const sums = args.sums + r * args.hidden;
    T* const residual = static_cast<T*>(args.residual) + r * args.hidden;
    for (std::size_t i = 0; i < args.hidden; i += kLanes)
      add_to_residual(widen_some(sums + i, args.hidden - i), residual + i, args.hidden - i);
  });
}

void add_sums(const AddSumsArgs& args) {
  switch (args.type) {
    case DType::f32: return add_sums_as<float>(args);
    case DType::bf16: return add_sums_as<Bf16>(args);
    case DType::f16: return add_sums_as<F16>(args);
  }
}

// ---- rows as they are

void gather_rows(const GatherRowsArgs& args) {
  const std::size_t bytes = args.hidden * size_of(args.type);
  for_rows(args.count, args.hidden, [&](std::size_t p) HWY_ATTR {
    const std::size_t row = static_cast<std::size_t>(args.pairs[p]) / args.per_token;
    std::memcpy(static_cast<std::byte*>(args.out) + p * bytes,
                static_cast<const std::byte*>(args.x) + row * bytes, bytes);
  });
}

void clear_sums(const ClearSumsArgs& args) {
  for_rows(args.rows, args.hidden, [&](std::size_t r) HWY_ATTR {
    std::fill_n(args.sums + r * args.hidden, args.hidden, 0.0f);
  });
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

LinearArgs product(const ExpertPairsArgs& args, const void* x, void* out) {
  LinearArgs linear;
  linear.x = x;
  linear.out = out;
  linear.weight_type = args.shape.weight_type;
  linear.encoding = args.shape.encoding;
  linear.type = args.type;
  linear.rows = 1;
  return linear;
}

// One row through one expert. What SiLU leaves takes the place of the gate that it was made from.
void one_pair(const ExpertPairsArgs& args, std::size_t pair, const std::byte* slab) {
  const ExpertShape& shape = args.shape;
  const std::size_t element = size_of(args.type);
  std::byte* const inner = static_cast<std::byte*>(args.inner) + pair * 2 * shape.inter * element;
  LinearArgs gate_up = product(
      args, static_cast<const std::byte*>(args.x) + pair / args.per_token * shape.hidden * element,
      inner);
  gate_up.weight = slab + shape.gate_up;
  gate_up.scales = slab + shape.gate_up_scales;
  gate_up.n = 2 * shape.inter;
  gate_up.k = shape.hidden;
  linear(gate_up);
  silu_mul({.gate_up = inner, .out = inner, .type = args.type, .rows = 1, .inter = shape.inter});
  LinearArgs down =
      product(args, inner, static_cast<std::byte*>(args.out) + pair * shape.hidden * element);
  down.weight = slab + shape.down;
  down.scales = slab + shape.down_scales;
  down.n = shape.hidden;
  down.k = shape.inter;
  linear(down);
}

}  // namespace

HWY_EXPORT(route);
HWY_EXPORT(combine);
HWY_EXPORT(gather_rows);
HWY_EXPORT(add_rows);
HWY_EXPORT(clear_sums);
HWY_EXPORT(add_sums);

void route(const RouteArgs& args) { HWY_DYNAMIC_DISPATCH(route)(args); }
void combine(const CombineArgs& args) { HWY_DYNAMIC_DISPATCH(combine)(args); }
void gather_rows(const GatherRowsArgs& args) { HWY_DYNAMIC_DISPATCH(gather_rows)(args); }
void add_rows(const AddRowsArgs& args) { HWY_DYNAMIC_DISPATCH(add_rows)(args); }
void clear_sums(const ClearSumsArgs& args) { HWY_DYNAMIC_DISPATCH(clear_sums)(args); }
void add_sums(const AddSumsArgs& args) { HWY_DYNAMIC_DISPATCH(add_sums)(args); }

// One after the other: each product takes all threads.
void expert_pairs(const ExpertPairsArgs& args) {
  for (std::size_t pair = 0; pair < std::size_t{args.rows} * args.per_token; ++pair) {
    const auto id = static_cast<std::uint32_t>(args.ids[pair]);
    if (args.which.contains(id)) one_pair(args, pair, args.table[id]);
  }
}

}  // namespace sluice::cpu
#endif
