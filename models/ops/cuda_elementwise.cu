#include <algorithm>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"

namespace sluice {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::size_t items) {
  return static_cast<unsigned>(std::min<std::size_t>((items + kThreads - 1) / kThreads, 8192));
}

// Rows are gathered straight from mapped host memory: they are few, and the table is large.
template <typename T, typename W>
__global__ void embed_kernel(const EmbedArgs args) {
  wait_for_previous();
  const std::uint32_t row = blockIdx.x;
  const std::size_t from = std::size_t(args.rows.tokens[row]) * args.hidden;
  const W* table = reinterpret_cast<const W*>(args.table);
  T* out = static_cast<T*>(args.out) + std::size_t{row} * args.hidden;
  for (std::uint32_t i = threadIdx.x; i < args.hidden; i += kThreads)
    out[i] = from_float<T>(to_float(table[from + i]));
}

template <typename T, typename W>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const RmsNormArgs args) {
  wait_for_previous();
  let_next_begin();
  const T* x = static_cast<const T*>(args.x) + std::size_t{blockIdx.x} * args.cols;
  T* out = static_cast<T*>(args.out) + std::size_t{blockIdx.x} * args.cols;
  const W* weight = reinterpret_cast<const W*>(args.weight);
  float squares = 0;
  for (std::uint32_t i = threadIdx.x; i < args.cols; i += kThreads) {
    const float value = to_float(x[i]);
    squares = fmaf(value, value, squares);
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / float(args.cols) + args.eps);
  for (std::uint32_t i = threadIdx.x; i < args.cols; i += kThreads)
    out[i] = from_float<T>(rounded<T>(to_float(x[i]) * scale) * to_float(weight[i]));
}

template <typename T>
__device__ T* kv_address(const KvLayer& kv, std::uint32_t sequence, std::uint32_t position,
                         bool value, std::uint32_t head) {
  const std::int32_t page =
      kv.page_table[std::size_t{sequence} * kv.pages_per_sequence + position / kPageTokens];
  T* base = reinterpret_cast<T*>(kv.pages + std::size_t(page) * kv.page_bytes);
  const std::size_t plane = std::size_t{value} * kv.kv_heads + head;
  return base + (plane * kPageTokens + position % kPageTokens) * kv.head_dim;
}

// A warp per head of q, k and v. A lane holds the pairs (i, i + head_dim / 2) of its i.
template <typename T, typename W>
__global__ void rope_store_kernel(const RopeStoreArgs args) {
  wait_for_previous();
  let_next_begin();
  constexpr int kPairs = 4;  // of a lane: head_dim up to 256
  const std::uint32_t lane = threadIdx.x % kWarp;
  const std::uint32_t head = blockIdx.y * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  const std::uint32_t kv_heads = args.kv.kv_heads, dim = args.kv.head_dim, half = dim / 2;
  if (head >= args.heads + 2 * kv_heads) return;
  const std::uint32_t row = blockIdx.x;
  const auto position = std::uint32_t(args.rows.positions[row]);
  const auto sequence = std::uint32_t(args.rows.sequences[row]);
  T* x = static_cast<T*>(args.qkv) + (std::size_t{row} * (args.heads + 2 * kv_heads) + head) * dim;
  const bool is_query = head < args.heads, is_value = head >= args.heads + kv_heads;
  if (is_value) {
    T* to = kv_address<T>(args.kv, sequence, position, true, head - args.heads - kv_heads);
    for (std::uint32_t i = lane; i < dim; i += kWarp) to[i] = x[i];
    return;
  }
  float low[kPairs], high[kPairs], squares = 0;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const std::uint32_t i = lane + p * kWarp;
    low[p] = i < half ? to_float(x[i]) : 0.0f;
    high[p] = i < half ? to_float(x[i + half]) : 0.0f;
    squares = fmaf(low[p], low[p], fmaf(high[p], high[p], squares));
  }
  const std::byte* norm = is_query ? args.q_norm : args.k_norm;
  if (norm) {
    const W* weight = reinterpret_cast<const W*>(norm);
    const float scale = rsqrtf(warp_sum(squares) / float(dim) + args.eps);
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const std::uint32_t i = lane + p * kWarp;
      if (i >= half) continue;
      low[p] = rounded<T>(rounded<T>(low[p] * scale) * to_float(weight[i]));
      high[p] = rounded<T>(rounded<T>(high[p] * scale) * to_float(weight[i + half]));
    }
  }
  T* to = is_query ? x : kv_address<T>(args.kv, sequence, position, false, head - args.heads);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const std::uint32_t i = lane + p * kWarp;
    if (i >= half) continue;
    const float cos = rounded<T>(args.cos[std::size_t{position} * half + i]);
    const float sin = rounded<T>(args.sin[std::size_t{position} * half + i]);
    to[i] = from_float<T>(rounded<T>(low[p] * cos) + rounded<T>(-high[p] * sin));
    to[i + half] = from_float<T>(rounded<T>(high[p] * cos) + rounded<T>(low[p] * sin));
  }
}

template <typename T>
__global__ void silu_mul_kernel(const SiluMulArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::size_t total = std::size_t{args.rows} * args.inter;
  for (std::size_t at = blockIdx.x * std::size_t{kThreads} + threadIdx.x; at < total;
       at += std::size_t{gridDim.x} * kThreads) {
    const std::size_t row = at / args.inter, i = at % args.inter;
    const T* gate = static_cast<const T*>(args.gate_up) + row * 2 * args.inter;
    const float g = to_float(gate[i]);
    const float silu = rounded<T>(g / (1.0f + expf(-g)));
    static_cast<T*>(args.out)[at] = from_float<T>(silu * to_float(gate[args.inter + i]));
  }
}

__global__ void decode_rows_kernel(const DecodeRowsArgs args) {
  wait_for_previous();
  const std::uint32_t row = threadIdx.x + blockIdx.x * kThreads;
  if (row >= args.count) return;
  const std::int32_t sequence = args.active[row];
  args.sequences[row] = sequence;
  args.tokens[row] = args.next_tokens[sequence];
  args.positions[row] = args.lengths[sequence];
}

}  // namespace

void cuda_embed(const EmbedArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    with_type(args.table_type, [&](auto w) {
      launch(embed_kernel<decltype(t), decltype(w)>, args.rows.count, kThreads, 0, on.stream,
             on.overlap, args);
    });
  });
}

void cuda_rms_norm(const RmsNormArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    with_type(args.weight_type, [&](auto w) {
      launch(rms_norm_kernel<decltype(t), decltype(w)>, args.rows, kThreads, 0, on.stream,
             on.overlap, args);
    });
  });
}

void cuda_rope_store(const RopeStoreArgs& args, const CudaLaunch& on) {
  constexpr unsigned kHeadsPerBlock = 4;
  const unsigned heads = args.heads + 2 * args.kv.kv_heads;
  const dim3 grid(args.rows.count, (heads + kHeadsPerBlock - 1) / kHeadsPerBlock);
  with_type(args.type, [&](auto t) {
    with_type(args.norm_type, [&](auto w) {
      launch(rope_store_kernel<decltype(t), decltype(w)>, grid, kHeadsPerBlock * kWarp, 0,
             on.stream, on.overlap, args);
    });
  });
}

void cuda_silu_mul(const SiluMulArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(silu_mul_kernel<decltype(t)>, blocks_for(std::size_t{args.rows} * args.inter), kThreads,
           0, on.stream, on.overlap, args);
  });
}

void cuda_decode_rows(const DecodeRowsArgs& args, const CudaLaunch& on) {
  launch(decode_rows_kernel, blocks_for(args.count), kThreads, 0, on.stream, on.overlap, args);
}

}  // namespace sluice
