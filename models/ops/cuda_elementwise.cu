#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_norm.cuh"
#include "models/ops/cuda_rope.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads == kNormThreads);

constexpr int kEmbedThreads = 512;

// Rows are gathered straight from mapped host memory: they are few, and the table is large. A thread
// asks for all that it wants at once, as each answer takes the link's time.
template <typename T, typename W>
__global__ void __launch_bounds__(kEmbedThreads) embed_kernel(const EmbedArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t row = blockIdx.x;
  const W* from =
      reinterpret_cast<const W*>(args.table) + std::size_t(args.rows.tokens[row]) * args.hidden;
  T* to = static_cast<T*>(args.out) + std::size_t{row} * args.hidden;
#pragma unroll 2
  for (std::uint32_t i = threadIdx.x * 8; i < args.hidden; i += kEmbedThreads * 8) {
    const Eight<W> values = load_eight(from, i, args.hidden);
    Eight<T> out;
#pragma unroll
    for (int e = 0; e < 8; ++e) out.v[e] = from_float<T>(to_float(values.v[e]));
    store_eight(to, i, args.hidden, out);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const RmsNormArgs args) {
  wait_for_previous();
  let_next_begin();
  const T* x = static_cast<const T*>(args.x) + std::size_t{blockIdx.x} * args.cols;
  T* out = static_cast<T*>(args.out) + std::size_t{blockIdx.x} * args.cols;
  __shared__ float warp_sums[kNormWarps];
  const float squares = warp_sum(squares_of(x, args.cols));
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = squares;
  __syncthreads();
  const float scale = inverse_rms(warp_sums, args.cols, args.eps);
  for (std::uint32_t i = threadIdx.x * 8; i < args.cols; i += kThreads * 8) {
    Eight<T> values = load_eight(x, i, args.cols);
    float weight[8];
    load_eight(args.weight, args.weight_type, i, args.cols, weight);
#pragma unroll
    for (int e = 0; e < 8; ++e) values.v[e] = normalised(values.v[e], scale, weight[e]);
    store_eight(out, i, args.cols, values);
  }
}

// A warp per head of q, k and v.
template <typename T>
__global__ void __launch_bounds__(kThreads) rope_store_kernel(const RopeStoreArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t lane = threadIdx.x % kWarp;
  const std::uint32_t head = blockIdx.y * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::uint32_t kv_heads = args.kv.kv_heads, dim = args.kv.head_dim;
  if (head >= args.heads + 2 * kv_heads) return;
  const std::uint32_t row = blockIdx.x;
  const auto position = std::uint32_t(args.rows.positions[row]);
  const auto sequence = std::uint32_t(args.rows.sequences[row]);
  T* const x =
      static_cast<T*>(args.qkv) + (std::size_t{row} * (args.heads + 2 * kv_heads) + head) * dim;
  const bool is_query = head < args.heads;
  if (head >= args.heads + kv_heads) {
    T* to = kv_address<T>(args.kv, sequence, position, true, head - args.heads - kv_heads);
    for (std::uint32_t i = 2 * lane; i < dim; i += 2 * kWarp)
      *reinterpret_cast<Two<T>*>(to + i) = *reinterpret_cast<const Two<T>*>(x + i);
    return;
  }
  T* const to = is_query ? x : kv_address<T>(args.kv, sequence, position, false, head - args.heads);
  const Rotation<T> rotate(args, is_query ? args.q_norm : args.k_norm, position);
  rotate(x, [&](std::uint32_t i, const Two<T>& two) { *reinterpret_cast<Two<T>*>(to + i) = two; });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) silu_mul_kernel(const SiluMulArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t i = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (i >= args.inter) return;
  const T* gate = static_cast<const T*>(args.gate_up) + std::size_t{blockIdx.y} * 2 * args.inter;
  const Eight<T> g = load_eight(gate, i, args.inter);
  const Eight<T> up = load_eight(gate + args.inter, i, args.inter);
  Eight<T> out;
#pragma unroll
  for (int e = 0; e < 8; ++e)
    out.v[e] = from_float<T>(rounded<T>(silu(to_float(g.v[e]))) * to_float(up.v[e]));
  store_eight(static_cast<T*>(args.out) + std::size_t{blockIdx.y} * args.inter, i, args.inter, out);
}

__global__ void decode_rows_kernel(const DecodeRowsArgs args) {
  wait_for_previous();
  let_next_begin();
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
      launch(embed_kernel<decltype(t), decltype(w)>, args.rows.count, kEmbedThreads, 0, on.stream,
             on.overlap, args);
    });
  });
}

void cuda_rms_norm(const RmsNormArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(rms_norm_kernel<decltype(t)>, args.rows, kThreads, 0, on.stream, on.overlap, args);
  });
}

void cuda_rope_store(const RopeStoreArgs& args, const CudaLaunch& on) {
  constexpr unsigned kHeadsPerBlock = kThreads / kWarp;
  const unsigned heads = args.heads + 2 * args.kv.kv_heads;
  const dim3 grid(args.rows.count, (heads + kHeadsPerBlock - 1) / kHeadsPerBlock);
  with_type(args.type, [&](auto t) {
    launch(rope_store_kernel<decltype(t)>, grid, kThreads, 0, on.stream, on.overlap, args);
  });
}

void cuda_silu_mul(const SiluMulArgs& args, const CudaLaunch& on) {
  const dim3 grid((args.inter + kThreads * 8 - 1) / (kThreads * 8), args.rows);
  with_type(args.type, [&](auto t) {
    launch(silu_mul_kernel<decltype(t)>, grid, kThreads, 0, on.stream, on.overlap, args);
  });
}

void cuda_decode_rows(const DecodeRowsArgs& args, const CudaLaunch& on) {
  launch(decode_rows_kernel, (args.count + kThreads - 1) / kThreads, kThreads, 0, on.stream,
         on.overlap, args);
}

}  // namespace sluice
