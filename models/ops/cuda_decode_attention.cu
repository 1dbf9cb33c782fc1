#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_mma.cuh"
#include "models/ops/cuda_page_tile.cuh"
#include "models/ops/cuda_rope.cuh"

namespace sluice {
namespace {

constexpr int kThreads = kTileThreads;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPage = kTileRows;  // a span is a page
constexpr int kLanesPerKey = kThreads / kPage;
constexpr int kSlices = 4;  // of a page's positions, in the sum over values
constexpr int kSliceKeys = kPage / kSlices;
constexpr int kPairLanes = kThreads / kSlices;
constexpr int kPairSteps = kMaxRopeDim / 2 / kPairLanes;
constexpr std::uint32_t kRun = 16;  // spans that are merged at a time
static_assert(kLanesPerKey == 4);

struct SpanArgs {
  AttentionArgs attention;
  RopeStoreArgs rope;  // where a kernel rotates and stores as well
  CudaAttentionSpace space;
  std::uint32_t spans = 0;  // of the grid
};

__host__ __device__ inline std::uint32_t runs_of(std::uint32_t spans) {
  return (spans + kRun - 1) / kRun;
}

// What a softmax over some positions leaves: weights relative to the largest score.
struct Softmax {
  float most = -INFINITY, sum = 0, value = 0;
};

// Where a head's partial results lie, one a span and after them one a run of spans:
// {max, sum, head_dim values}.
__device__ inline float* partial_of(const SpanArgs& args, std::uint32_t row, std::uint32_t head,
                                    std::uint32_t index) {
  const std::size_t per_head = args.spans + runs_of(args.spans);
  const std::size_t at = (std::size_t{row} * args.attention.heads + head) * per_head + index;
  return args.space.partials + at * (args.attention.kv.head_dim + 2);
}

// Value d of `count` partial results from `first` on, kRun at a time in ascending order.
__device__ inline Softmax merged(const float* first, std::uint32_t count, std::uint32_t dim,
                                 std::uint32_t d) {
  Softmax all;
  for (std::uint32_t begin = 0; begin < count; begin += kRun) {
    Softmax part[kRun];
#pragma unroll
    for (std::uint32_t i = 0; i < kRun; ++i) {
      if (begin + i >= count) continue;
      const float* const from = first + std::size_t{begin + i} * (dim + 2);
      part[i] = {__ldcg(from), __ldcg(from + 1), __ldcg(from + 2 + d)};
    }
    float highest = all.most;
#pragma unroll
    for (std::uint32_t i = 0; i < kRun; ++i) highest = fmaxf(highest, part[i].most);
    const float shrink = expf(all.most - highest);
    all = {highest, all.sum * shrink, all.value * shrink};
#pragma unroll
    for (std::uint32_t i = 0; i < kRun; ++i) {
      const float weight = expf(part[i].most - highest);
      all.sum = fmaf(part[i].sum, weight, all.sum);
      all.value = fmaf(part[i].value, weight, all.value);
    }
  }
  return all;
}

// True, in every thread, in the block that is the last of `expected` to come here with `arrived`,
// which is 0 again then. What the others wrote before may be read.
__device__ inline bool comes_last(std::uint32_t* arrived, std::uint32_t expected) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(arrived, 1u) == expected - 1;
    if (is_last) *arrived = 0;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

// One block: one row, one head of keys and values with kGroup of its query heads, one span of
// positions. A span's own maximum and sum keep its result independent of the others. Whichever block
// of a run of spans ends last merges them, and whichever run ends last merges the runs.
//
// With kRope the row's q, k and v come as they left their product: q and k are normalised and
// rotated here and k and v stored. All else that it reads was written before the operation ahead of
// it began, so it is read while that one still runs.
template <typename T, int kGroup, bool kRope>
__global__ void __launch_bounds__(kThreads) span_kernel(const SpanArgs args) {
  const AttentionArgs& attention = args.attention;
  const KvLayer& kv = attention.kv;
  const std::uint32_t dim = kv.head_dim, width = row_width<T>(dim), query_width = padded(dim);
  extern __shared__ __align__(16) unsigned char shared[];
  T* const keys = reinterpret_cast<T*>(shared);                            // [kPage][width]
  T* const values = keys + kPage * width;                                  // [kPage][width]
  T* const new_key = values + kPage * width;                               // [padded]
  T* const new_value = new_key + query_width;                              // [padded]
  float* const query = reinterpret_cast<float*>(new_value + query_width);  // [kGroup][padded]
  float* const slice_sums = query + kGroup * query_width;                  // [kSlices][kGroup][dim]
  // Aligned, as vectors are read that would otherwise reach into a neighbour.
  __shared__ alignas(16) float weights[kPage][kGroup];
  __shared__ alignas(16) float warp_most[kGroup][kWarps];
  __shared__ alignas(16) float warp_sums[kGroup][kWarps];
  static_assert(kGroup + 2 <= kWarps);

  if constexpr (!kRope) wait_for_previous();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::uint32_t row = blockIdx.x, span = blockIdx.z;
  const std::uint32_t group = attention.heads / kv.kv_heads, parts = group / kGroup;
  const std::uint32_t kv_head = blockIdx.y / parts, part = blockIdx.y % parts;
  const std::uint32_t first_head = kv_head * group + part * kGroup;
  const int last = __ldcg(attention.rows.positions + row);
  const int begin = int(span) * kPage;
  if (begin > last) {
    if constexpr (kRope) wait_for_previous();
    return;
  }
  const auto sequence = std::uint32_t(__ldcg(attention.rows.sequences + row));
  const std::int32_t page =
      __ldcg(kv.page_table + std::size_t{sequence} * kv.pages_per_sequence + span);
  T* const page_keys = reinterpret_cast<T*>(kv.pages + std::size_t(page) * kv.page_bytes) +
                       std::size_t{kv_head} * kPage * dim;
  T* const page_values = page_keys + std::size_t{kv.kv_heads} * kPage * dim;
  const int stored = (kRope ? last : last + 1) - begin;  // of the page's rows
  fill_tile(keys, page_keys, dim, stored);
  fill_tile(values, page_values, dim, stored);
  close_copy_group();
  if (query_width != dim)
    for (std::uint32_t i = threadIdx.x; i < (kGroup + 1) * query_width; i += kThreads) {
      if (i % query_width < dim) continue;
      if (i / query_width < kGroup)
        query[i] = 0;
      else
        new_key[i % query_width] = from_float<T>(0.0f);
    }

  const std::size_t row_values = std::size_t{attention.heads + 2 * kv.kv_heads} * dim;
  const T* const qkv = static_cast<const T*>(attention.qkv) + row * row_values;
  const int new_row = kRope ? last - begin : kPage;  // of the page; the block has it, or not
  if constexpr (kRope) {
    const bool is_query = warp < kGroup;
    const Rotation<T> rotate(args.rope, is_query ? args.rope.q_norm : args.rope.k_norm, last);
    wait_for_previous();
    let_next_begin();
    if (is_query) {
      rotate(qkv + (first_head + warp) * dim, [&](std::uint32_t i, const Two<T>& two) {
        query[warp * query_width + i] = to_float(two.v[0]);
        query[warp * query_width + i + 1] = to_float(two.v[1]);
      });
    } else if (warp == kGroup && new_row < kPage) {
      rotate(qkv + (attention.heads + kv_head) * dim, [&](std::uint32_t i, const Two<T>& two) {
        *reinterpret_cast<Two<T>*>(new_key + i) = two;
        if (part == 0) *reinterpret_cast<Two<T>*>(page_keys + new_row * dim + i) = two;
      });
    } else if (warp == kGroup + 1 && new_row < kPage) {
      const T* const value = qkv + (attention.heads + kv.kv_heads + kv_head) * dim;
      for (std::uint32_t i = 2 * lane; i < dim; i += 2 * kWarp) {
        const auto two = *reinterpret_cast<const Two<T>*>(value + i);
        *reinterpret_cast<Two<T>*>(new_value + i) = two;
        if (part == 0) *reinterpret_cast<Two<T>*>(page_values + new_row * dim + i) = two;
      }
    }
  } else {
    let_next_begin();
    for (std::uint32_t i = threadIdx.x; i < kGroup * dim; i += kThreads)
      query[i / dim * query_width + i % dim] = to_float(qkv[first_head * dim + i]);
  }
  wait_for_copies<0>();
  __syncthreads();

  constexpr int kPiece = 16 / sizeof(T);
  const int key = threadIdx.x / kLanesPerKey, piece_lane = threadIdx.x % kLanesPerKey;
  const T* const key_row = key == new_row ? new_key : keys + key * width;
  float score[kGroup] = {};
#pragma unroll 4
  for (int at = piece_lane * kPiece; at < int(query_width); at += kLanesPerKey * kPiece) {
    T k[kPiece];
    *reinterpret_cast<uint4*>(k) = *reinterpret_cast<const uint4*>(key_row + at);
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      float q[kPiece];
#pragma unroll
      for (int e = 0; e < kPiece; e += 4)
        *reinterpret_cast<float4*>(q + e) =
            *reinterpret_cast<const float4*>(query + g * query_width + at + e);
#pragma unroll
      for (int e = 0; e < kPiece; ++e) score[g] = fmaf(to_float(k[e]), q[e], score[g]);
    }
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    score[g] += __shfl_xor_sync(kAllLanes, score[g], 1);
    score[g] += __shfl_xor_sync(kAllLanes, score[g], 2);
    score[g] = begin + key <= last ? score[g] * attention.scale : -INFINITY;
    const float highest = warp_max(score[g]);
    if (lane == 0) warp_most[g][warp] = highest;
  }
  __syncthreads();
  float most[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    most[g] = warp_most[g][0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) most[g] = fmaxf(most[g], warp_most[g][w]);
    // Weights are rounded as the reference does; their sum is of f32.
    const float weight = expf(score[g] - most[g]);
    if (piece_lane == 0) weights[key][g] = rounded<T>(weight);
    const float total = warp_sum(piece_lane == 0 ? weight : 0.0f);
    if (lane == 0) warp_sums[g][warp] = total;
  }
  __syncthreads();

  const int slice = threadIdx.x / kPairLanes;
#pragma unroll
  for (int s = 0; s < kPairSteps; ++s) {
    const std::uint32_t d = 2 * (threadIdx.x % kPairLanes + s * kPairLanes);
    if (d >= dim) continue;
    float low[kGroup] = {}, high[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kSliceKeys; ++i) {
      const int at = slice * kSliceKeys + i;
      const T* const value_row = at == new_row ? new_value : values + at * width;
      const auto two = *reinterpret_cast<const Two<T>*>(value_row + d);
      const float a = to_float(two.v[0]), b = to_float(two.v[1]);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        low[g] = fmaf(weights[at][g], a, low[g]);
        high[g] = fmaf(weights[at][g], b, high[g]);
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      slice_sums[(slice * kGroup + g) * dim + d] = low[g];
      slice_sums[(slice * kGroup + g) * dim + d + 1] = high[g];
    }
  }
  __syncthreads();

  const std::uint32_t used = std::uint32_t(last) / kPage + 1, used_runs = runs_of(used);
  T* const out =
      static_cast<T*>(attention.out) + (std::size_t{row} * attention.heads + first_head) * dim;
  const auto for_each_output = [&](auto softmax_of, bool is_result, std::uint32_t index) {
#pragma unroll 2
    for (std::uint32_t i = threadIdx.x; i < kGroup * dim; i += kThreads) {
      const std::uint32_t g = i / dim, d = i % dim;
      const Softmax softmax = softmax_of(g, d);
      if (is_result) {
        out[i] = from_float<T>(softmax.value / softmax.sum);
        continue;
      }
      float* const to = partial_of(args, row, first_head + g, index);
      to[2 + d] = softmax.value;
      if (d != 0) continue;
      to[0] = softmax.most;
      to[1] = softmax.sum;
    }
  };
  const auto of_span = [&](std::uint32_t g, std::uint32_t d) {
    Softmax softmax;
#pragma unroll
    for (int h = 0; h < kGroup; ++h)
      if (h == int(g)) softmax.most = most[h];
    for (int w = 0; w < kWarps; ++w) softmax.sum += warp_sums[g][w];
#pragma unroll
    for (int s = 0; s < kSlices; ++s) softmax.value += slice_sums[(s * kGroup + g) * dim + d];
    return softmax;
  };
  const auto of_partials = [&](std::uint32_t first, std::uint32_t count) {
    return [&args, row, first_head, dim, first, count](std::uint32_t g, std::uint32_t d) {
      return merged(partial_of(args, row, first_head + g, first), count, dim, d);
    };
  };
  for_each_output(of_span, used == 1, span);
  if (used == 1) return;
  std::uint32_t* const arrived =
      args.space.arrived + (std::size_t{row} * gridDim.y + blockIdx.y) * (runs_of(args.spans) + 1);
  const std::uint32_t run = span / kRun, in_run = min(kRun, used - run * kRun);
  if (!comes_last(arrived + 1 + run, in_run)) return;
  for_each_output(of_partials(run * kRun, in_run), used_runs == 1, args.spans + run);
  if (used_runs == 1 || !comes_last(arrived, used_runs)) return;
  for_each_output(of_partials(args.spans, used_runs), true, 0);
}

constexpr std::uint32_t kTaken[] = {5, 4, 3, 2};
constexpr std::uint32_t kBlocksAtOnce = 4;  // on a multiprocessor

// Of a block; every architecture in use has as much.
constexpr std::size_t kMostShared = 96 << 10;

std::size_t shared_bytes(const AttentionArgs& args, std::uint32_t group) {
  const std::size_t width = padded(args.kv.head_dim), value = size_of(args.type);
  return 2 * kPage * (width * value + kRowGapBytes) + 2 * width * value +
         sizeof(float) * (1 + kSlices) * group * width;
}

// Heads of queries that a block takes: a divisor of those that share a head of keys. One, so that
// each takes the least time, unless that makes more blocks than run at once.
std::uint32_t taken_together(const AttentionArgs& args, std::uint32_t spans,
                             std::uint32_t processors) {
  const std::uint32_t group = args.heads / args.kv.kv_heads;
  if (std::uint64_t{args.rows.count} * args.heads * spans <=
      std::uint64_t{kBlocksAtOnce} * processors)
    return 1;
  for (const std::uint32_t size : kTaken)
    if (group % size == 0) return size;
  return 1;
}

template <typename T, int kGroup, bool kRope>
void launch_spans(const SpanArgs& args, const CudaLaunch& on) {
  const auto kernel = span_kernel<T, kGroup, kRope>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared));
  SLUICE_CUDA_CHECK(allowed);
  const AttentionArgs& attention = args.attention;
  const dim3 grid(attention.rows.count, attention.heads / kGroup, args.spans);
  launch(kernel, grid, kThreads, shared_bytes(attention, kGroup), on.stream, on.overlap, args);
}

template <bool kRope>
void launch_spans(const SpanArgs& args, const CudaLaunch& on) {
  with_type(args.attention.type, [&](auto t) {
    using T = decltype(t);
    switch (taken_together(args.attention, args.spans, on.processors)) {
      case 5: return launch_spans<T, 5, kRope>(args, on);
      case 4: return launch_spans<T, 4, kRope>(args, on);
      case 3: return launch_spans<T, 3, kRope>(args, on);
      case 2: return launch_spans<T, 2, kRope>(args, on);
      default: return launch_spans<T, 1, kRope>(args, on);
    }
  });
}

std::uint32_t spans_of(const AttentionArgs& args) {
  const std::uint32_t capacity = args.kv.pages_per_sequence;
  if (args.longest == 0) return capacity;
  return std::min((args.longest + kPage - 1) / kPage, capacity);
}

}  // namespace

CudaAttentionNeed cuda_attention_need(std::uint32_t rows, const AttentionArgs& args) {
  const std::uint64_t heads = std::uint64_t{rows} * args.heads;
  const std::uint32_t spans = args.kv.pages_per_sequence;
  return {heads * (spans + runs_of(spans)) * (args.kv.head_dim + 2), heads * (runs_of(spans) + 1)};
}

bool cuda_has_decode_attention(const AttentionArgs& args) {
  return args.kv.head_dim % 4 == 0 && args.kv.head_dim <= kMaxRopeDim &&
         shared_bytes(args, kTaken[0]) <= kMostShared;
}

void cuda_decode_attention(const AttentionArgs& args, const CudaAttentionSpace& space,
                           const CudaLaunch& on) {
  launch_spans<false>({.attention = args, .space = space, .spans = spans_of(args)}, on);
}

void cuda_rope_attention(const RopeAttentionArgs& args, const CudaAttentionSpace& space,
                         const CudaLaunch& on) {
  launch_spans<true>({.attention = args.attention,
                      .rope = args.rope,
                      .space = space,
                      .spans = spans_of(args.attention)},
                     on);
}

}  // namespace sluice
