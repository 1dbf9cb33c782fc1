// What the operations of a layer of experts are asked to do. As in kernel_args.hpp: sums in f32, one
// rounding to the activation type where a result is named.
//
// A token and one of the experts chosen for it are a pair; the pairs of a row are in the order of
// their experts' ids, so that what is summed over them never depends on where an expert lay.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"
#include "models/ops/kernel_args.hpp"
#include "sluice/unit.hpp"

namespace sluice {

// Experts of a layer, at most: a set of them fits into a kernel's arguments.
inline constexpr std::uint32_t kMaxExperts = 512;
// Experts chosen for a token, at most.
inline constexpr std::uint32_t kMaxExpertsPerToken = 32;

// Chooses each row's experts: a softmax over all scores in f32, the best per_token (ties to the lower
// id), their weights made to sum up to 1 where `normalise`, then rounded.
struct RouteArgs {
  const void* scores = nullptr;  // [rows, experts] of `type`: the router's product
  DType type = DType::bf16;
  std::uint32_t rows = 0, experts = 0, per_token = 0;
  bool normalise = false;
  // Ids in place of those chosen, ascending in each row, [rows, per_token]; or null. Their weights
  // come from the scores all the same.
  const std::int32_t* given = nullptr;
  std::int32_t* ids = nullptr;  // [rows, per_token], ascending in each row
  float* weights = nullptr;     // [rows, per_token], each a value of `type`
  // The same for the host, in pinned memory; null where it does not ask.
  std::int32_t* host_ids = nullptr;
  float* host_weights = nullptr;
  // Pinned, too, [rows]: each becomes `done_value` once all else of its row is written; or null.
  std::uint32_t* done = nullptr;
  std::uint32_t done_value = 0;
};

// Experts of one layer, by id.
class ExpertSet {
 public:
  constexpr void insert(std::uint32_t id) { words_[id / 64] |= std::uint64_t{1} << (id % 64); }
  constexpr bool contains(std::uint32_t id) const { return words_[id / 64] >> (id % 64) & 1; }

 private:
  std::array<std::uint64_t, kMaxExperts / 64> words_{};
};

// Where a layer's experts lie on the device: [experts] slabs; an expert without a slot may have any
// value. Written by place_experts, which is how it changes in the order of its stream.
using ExpertTable = const std::byte**;

struct PlaceExpertsArgs {
  static constexpr std::uint32_t kMost = 16;  // of one operation
  ExpertTable table = nullptr;
  std::uint32_t count = 0;
  std::array<std::uint32_t, kMost> ids{};
  std::array<const std::byte*, kMost> slabs{};
};

// How the matrices of every expert of a model lie in its slab: gate and up as one of 2 x inter rows.
struct ExpertShape {
  Encoding encoding = Encoding::native;
  DType weight_type = DType::bf16;
  std::uint32_t hidden = 0, inter = 0;
  // Offsets into the slab; of scales where the encoding has them.
  std::uint64_t gate_up = 0, gate_up_scales = 0, down = 0, down_scales = 0;
};

// The pairs of a few rows, each with its expert: out = down(round(round(silu(gate x)) * up x)), with
// gate x and up x rounded. A pair's result is the same bits whatever other pairs there are.
struct ExpertPairsArgs {
  const void* x = nullptr;  // [rows, hidden] of `type`
  DType type = DType::bf16;
  std::uint32_t rows = 0, per_token = 0;
  const std::int32_t* ids = nullptr;  // [rows, per_token]
  ExpertTable table = nullptr;
  ExpertSet which;  // pairs of other experts are left alone
  ExpertShape shape;
  void* inner = nullptr;  // scratch [rows * per_token, 2 * inter] of `type`
  void* out = nullptr;    // [rows * per_token, hidden] of `type`
};

// residual = round(residual + round(sum)), where sum is that of round(weight * y) over a row's pairs in
// their order, in f32.
struct CombineArgs {
  const void* pairs = nullptr;     // y: [rows, per_token, hidden] of `type`
  const float* weights = nullptr;  // [rows, per_token]
  void* residual = nullptr;        // [rows, hidden] of `type`; updated in place
  DType type = DType::bf16;
  std::uint32_t rows = 0, per_token = 0, hidden = 0;
};

// A layer of experts behind its attention, all of them in their places: the parts one after another, each
// with what the one before has written. Results are those of the parts, bit for bit; what lies between
// need not be written.
//
// On CUDA the table and what is given must have been written before the operation ahead of this one was
// enqueued, and the one behind it is a norm_linear or waits before it reads anything.
struct RoutedExpertsArgs {
  NormLinearArgs router;  // of `residual`; keeps what it has normalised
  RouteArgs route;        // for nobody else: no host waits for it
  ExpertTable table = nullptr;
  ExpertShape shape;
  void* inner = nullptr;    // scratch of the pairs
  void* results = nullptr;  // theirs
  void* residual = nullptr;

  ExpertPairsArgs pairs() const {
    ExpertSet all;
    for (std::uint32_t id = 0; id < route.experts; ++id) all.insert(id);
    return {.x = router.norm.out,
            .type = route.type,
            .rows = route.rows,
            .per_token = route.per_token,
            .ids = route.ids,
            .table = table,
            .which = all,
            .shape = shape,
            .inner = inner,
            .out = results};
  }
  CombineArgs combine() const {
    return {.pairs = results,
            .weights = route.weights,
            .residual = residual,
            .type = route.type,
            .rows = route.rows,
            .per_token = route.per_token,
            .hidden = shape.hidden};
  }
};

// Many rows: one expert at a time, over the rows that chose it.
// out[i] = x[pairs[i] / per_token]
struct GatherRowsArgs {
  const void* x = nullptr;              // [*, hidden] of `type`
  const std::int32_t* pairs = nullptr;  // [count]: row * per_token + rank, ascending
  void* out = nullptr;                  // [count, hidden]
  DType type = DType::bf16;
  std::uint32_t count = 0, per_token = 0, hidden = 0;
};
// sums[row] += round(weights[pairs[i]] * y[i]), the row being pairs[i] / per_token; a row occurs once.
// With the experts taken by ascending id that is the sum of CombineArgs.
struct AddRowsArgs {
  const void* y = nullptr;  // [count, hidden] of `type`
  const std::int32_t* pairs = nullptr;
  const float* weights = nullptr;  // [*, per_token]
  float* sums = nullptr;           // [*, hidden]
  DType type = DType::bf16;
  std::uint32_t count = 0, per_token = 0, hidden = 0;
};
// sums = 0
struct ClearSumsArgs {
  float* sums = nullptr;  // [rows, hidden]
  std::uint32_t rows = 0, hidden = 0;
};
// residual = round(residual + round(sums))
struct AddSumsArgs {
  const float* sums = nullptr;  // [rows, hidden]
  void* residual = nullptr;     // [rows, hidden] of `type`; updated in place
  DType type = DType::bf16;
  std::uint32_t rows = 0, hidden = 0;
};

}  // namespace sluice
