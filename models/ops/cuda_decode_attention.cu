#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"

namespace sluice {
namespace {

constexpr int kThreads = kAttentionSpan;  // one position each
constexpr int kWarps = kThreads / kWarp;
constexpr int kSlices = 4;  // of a span's positions, in the sum over values

template <typename T>
struct alignas(16) Eight {
  T v[8];
};

// What a span leaves for the merge: [rows][heads][spans] of {max, sum, head_dim values}.
__device__ inline float* partial_of(float* workspace, std::uint32_t row, std::uint32_t head,
                                    std::uint32_t span, std::uint32_t heads, std::uint32_t spans,
                                    std::uint32_t dim) {
  return workspace + ((std::size_t{row} * heads + head) * spans + span) * (dim + 2);
}

// One block: one row, one head of keys and values with its group of kGroup query heads, one span of
// positions. A span's own maximum and sum keep its result independent of the others.
template <typename T, int kGroup>
__global__ void __launch_bounds__(kThreads)
    span_kernel(const AttentionArgs args, float* workspace, std::uint32_t spans,
                std::uint32_t groups_per_head) {
  wait_for_previous();
  let_next_begin();
  extern __shared__ float shared[];
  const std::uint32_t dim = args.kv.head_dim;
  float* query = shared;                          // [kGroup][dim]
  float* weight = query + kGroup * dim;           // [kGroup][kThreads]
  float* slice_sum = weight + kGroup * kThreads;  // [kSlices][kGroup][dim]
  __shared__ float warp_part[kGroup][kWarps];

  const std::uint32_t row = blockIdx.x, span = blockIdx.z;
  const std::uint32_t kv_head = blockIdx.y / groups_per_head;
  const std::uint32_t group = args.heads / args.kv.kv_heads;
  const std::uint32_t first_head = kv_head * group + blockIdx.y % groups_per_head * kGroup;
  const auto last = std::uint32_t(args.rows.positions[row]);
  const std::uint32_t begin = span * kAttentionSpan;
  if (begin > last) return;
  const auto sequence = std::uint32_t(args.rows.sequences[row]);
  const std::uint32_t position = begin + threadIdx.x;
  const std::uint32_t page_row = position % kPageTokens;
  const T* page = nullptr;
  if (position <= last)
    page = reinterpret_cast<const T*>(
        args.kv.pages +
        std::size_t(args.kv.page_table[std::size_t{sequence} * args.kv.pages_per_sequence +
                                       position / kPageTokens]) *
            args.kv.page_bytes);

  const std::size_t row_width = std::size_t{args.heads + 2 * args.kv.kv_heads} * dim;
  const T* q = static_cast<const T*>(args.qkv) + row * row_width + std::size_t{first_head} * dim;
  for (std::uint32_t i = threadIdx.x; i < kGroup * dim; i += kThreads) query[i] = to_float(q[i]);
  __syncthreads();

  float score[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) score[g] = 0;
  if (page) {
    const T* key = page + (std::size_t{kv_head} * kPageTokens + page_row) * dim;
    for (std::uint32_t d = 0; d < dim; d += 8) {
      const Eight<T> k = *reinterpret_cast<const Eight<T>*>(key + d);
#pragma unroll
      for (int e = 0; e < 8; ++e)
#pragma unroll
        for (int g = 0; g < kGroup; ++g)
          score[g] = fmaf(to_float(k.v[e]), query[g * dim + d + e], score[g]);
    }
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    score[g] = page ? score[g] * args.scale : -INFINITY;
    const float most = warp_max(score[g]);
    if (threadIdx.x % kWarp == 0) warp_part[g][threadIdx.x / kWarp] = most;
  }
  __syncthreads();
  float most[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    most[g] = -INFINITY;
    for (int w = 0; w < kWarps; ++w) most[g] = fmaxf(most[g], warp_part[g][w]);
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    const float e = page ? expf(score[g] - most[g]) : 0.0f;
    weight[g * kThreads + threadIdx.x] = e;
    const float sum = warp_sum(e);
    if (threadIdx.x % kWarp == 0) warp_part[g][threadIdx.x / kWarp] = sum;
  }
  __syncthreads();

  // Threads: pairs of values across, slices of one page down.
  const std::uint32_t pairs = dim / 2, lanes = kThreads / kSlices;
  const std::uint32_t slice = threadIdx.x / lanes;
  const std::uint32_t slice_begin = begin + slice * kPageTokens;
  const std::uint32_t count =
      slice_begin > last ? 0 : min(std::uint32_t{kPageTokens}, last - slice_begin + 1);
  const T* value_page = nullptr;
  if (count)
    value_page =
        reinterpret_cast<const T*>(
            args.kv.pages +
            std::size_t(args.kv.page_table[std::size_t{sequence} * args.kv.pages_per_sequence +
                                           slice_begin / kPageTokens]) *
                args.kv.page_bytes) +
        (std::size_t{args.kv.kv_heads} + kv_head) * kPageTokens * dim;
  for (std::uint32_t pair = threadIdx.x % lanes; pair < pairs; pair += lanes) {
    float low[kGroup] = {}, high[kGroup] = {};
    for (std::uint32_t i = 0; i < count; ++i) {
      const T* v = value_page + std::size_t{i} * dim + 2 * pair;
      const float a = to_float(v[0]), b = to_float(v[1]);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float w = weight[g * kThreads + slice * kPageTokens + i];
        low[g] = fmaf(w, a, low[g]);
        high[g] = fmaf(w, b, high[g]);
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      slice_sum[(slice * kGroup + g) * dim + 2 * pair] = low[g];
      slice_sum[(slice * kGroup + g) * dim + 2 * pair + 1] = high[g];
    }
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < kGroup * dim; i += kThreads) {
    const std::uint32_t g = i / dim, d = i % dim;
    float total = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) total += slice_sum[s * kGroup * dim + i];
    float* out = partial_of(workspace, row, first_head + g, span, args.heads, spans, dim);
    out[2 + d] = total;
  }
  if (threadIdx.x < kGroup) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += warp_part[threadIdx.x][w];
    float* out = partial_of(workspace, row, first_head + threadIdx.x, span, args.heads, spans, dim);
    float highest = -INFINITY;
#pragma unroll
    for (int g = 0; g < kGroup; ++g)
      if (g == int(threadIdx.x)) highest = most[g];
    out[0] = highest;
    out[1] = sum;
  }
}

// Spans are merged ascending, a thread per value.
template <typename T>
__global__ void merge_kernel(const AttentionArgs args, float* workspace, std::uint32_t spans) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t row = blockIdx.x, head = blockIdx.y, dim = args.kv.head_dim;
  const std::uint32_t used = std::uint32_t(args.rows.positions[row]) / kAttentionSpan + 1;
  for (std::uint32_t d = threadIdx.x; d < dim; d += blockDim.x) {
    float most = -INFINITY, sum = 0, value = 0;
    for (std::uint32_t s = 0; s < used; ++s) {
      const float* part = partial_of(workspace, row, head, s, args.heads, spans, dim);
      const float highest = fmaxf(most, part[0]);
      const float before = expf(most - highest), now = expf(part[0] - highest);
      sum = sum * before + part[1] * now;
      value = value * before + part[2 + d] * now;
      most = highest;
    }
    static_cast<T*>(args.out)[(std::size_t{row} * args.heads + head) * dim + d] =
        from_float<T>(value / sum);
  }
}

template <typename T, int kGroup>
void launch_spans(const AttentionArgs& args, float* workspace, std::uint32_t spans,
                  const CudaLaunch& on) {
  const std::uint32_t group = args.heads / args.kv.kv_heads, dim = args.kv.head_dim;
  const std::size_t shared =
      sizeof(float) * (kGroup * dim + kGroup * kThreads + kSlices * kGroup * dim);
  const dim3 grid(args.rows.count, args.kv.kv_heads * (group / kGroup), spans);
  launch(span_kernel<T, kGroup>, grid, kThreads, shared, on.stream, on.overlap, args, workspace,
         spans, group / kGroup);
}

std::uint32_t spans_for(std::uint32_t positions) {
  return (positions + kAttentionSpan - 1) / kAttentionSpan;
}

}  // namespace

std::uint64_t cuda_attention_workspace(std::uint32_t rows, std::uint32_t heads,
                                       std::uint32_t head_dim, std::uint32_t positions) {
  return std::uint64_t{rows} * heads * spans_for(positions) * (head_dim + 2);
}

void cuda_decode_attention(const AttentionArgs& args, float* workspace, const CudaLaunch& on) {
  const std::uint32_t spans = spans_for(args.kv.pages_per_sequence * kPageTokens);
  const std::uint32_t group = args.heads / args.kv.kv_heads;
  with_type(args.type, [&](auto t) {
    using T = decltype(t);
    if (group % 4 == 0)
      launch_spans<T, 4>(args, workspace, spans, on);
    else if (group % 2 == 0)
      launch_spans<T, 2>(args, workspace, spans, on);
    else
      launch_spans<T, 1>(args, workspace, spans, on);
    launch(merge_kernel<T>, dim3(args.rows.count, args.heads), 128, 0, on.stream, on.overlap, args,
           workspace, spans);
  });
}

}  // namespace sluice
