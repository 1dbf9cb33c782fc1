#include "core/weights/encoding.hpp"
#include "models/ops/cuda_finish.cuh"
#include "models/ops/cuda_launchers.hpp"

namespace sluice {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// Rows of weights that are read one after the other.
template <typename W>
struct PlainRow {
  const W* weights = nullptr;
  __device__ PlainRow(const LinearArgs& args, std::size_t n)
      : weights(reinterpret_cast<const W*>(args.weight) + n * args.k) {}
  __device__ float at(std::uint32_t i) const { return to_float(weights[i]); }
};
struct Int8Row {
  const std::int8_t* codes = nullptr;
  float scale = 0;
  __device__ Int8Row(const LinearArgs& args, std::size_t n)
      : codes(reinterpret_cast<const std::int8_t*>(args.weight) +
              n * code_row_bytes(Encoding::int8, args.k)),
        scale(reinterpret_cast<const float*>(args.scales)[n]) {}
  __device__ float at(std::uint32_t i) const { return scale * float(codes[i]); }
};
struct Int4Row {
  const uint32_t* words = nullptr;
  const GroupScale* groups = nullptr;
  __device__ Int4Row(const LinearArgs& args, std::size_t n)
      : words(reinterpret_cast<const uint32_t*>(args.weight +
                                                n * code_row_bytes(Encoding::int4, args.k))),
        groups(reinterpret_cast<const GroupScale*>(args.scales +
                                                   n * scale_row_bytes(Encoding::int4, args.k))) {}
  __device__ float at(std::uint32_t i) const {
    const GroupScale group = groups[i / kGroupWeights];
    return __half2float(__ushort_as_half(group.scale)) *
           (float(code_in_word(words[i / 8], i % 8)) - __half2float(__ushort_as_half(group.zero)));
  }
};

// A warp per output, for what the tensor cores' kernels do not take: activations in f32 or of another
// type than the weights, and rows that are no whole number of 16-byte pieces.
template <typename T, typename Row>
__global__ void __launch_bounds__(kThreads) any_rows_kernel(const LinearArgs args) {
  wait_for_previous();
  const std::uint32_t n = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const std::uint32_t row = blockIdx.y;
  if (n >= args.n) return;
  const Row weights(args, n);
  const T* x = static_cast<const T*>(args.x) + std::size_t{row} * args.k;
  float sum = 0;
  for (std::uint32_t i = threadIdx.x % kWarp; i < args.k; i += kWarp)
    sum = fmaf(to_float(x[i]), weights.at(i), sum);
  sum = warp_sum(sum);
  const std::size_t at = std::size_t{row} * args.n + n;
  if (threadIdx.x % kWarp == 0) finish<T>(args, at, n, sum, residual_at<T>(args, at));
}

// Eight outputs a thread; n is a multiple of 8.
template <typename T>
__global__ void __launch_bounds__(kThreads) residual_kernel(const LinearArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t n = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (n >= args.n) return;
  const std::size_t row = std::size_t{blockIdx.y} * args.n;
  T* const residual = static_cast<T*>(args.residual) + row;
  const Eight<T> before = load_eight(residual, n, args.n);
  Eight<T> y = load_eight(static_cast<const T*>(args.out) + row, n, args.n);
#pragma unroll
  for (int e = 0; e < 8; ++e) y.v[e] = from_float<T>(to_float(before.v[e]) + to_float(y.v[e]));
  store_eight(residual, n, args.n, y);
}

}  // namespace

void cuda_linear_any(const LinearArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    using T = decltype(t);
    const auto any_rows = [&](auto kernel) {
      const dim3 grid(divided_up(args.n, kWarps), args.rows);
      launch(kernel, grid, kThreads, 0, on.stream, on.overlap, args);
    };
    if (args.encoding == Encoding::int8) return any_rows(any_rows_kernel<T, Int8Row>);
    if (args.encoding == Encoding::int4) return any_rows(any_rows_kernel<T, Int4Row>);
    with_type(args.weight_type,
              [&](auto w) { any_rows(any_rows_kernel<T, PlainRow<decltype(w)>>); });
  });
}

void cuda_add_residual(const LinearArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    const dim3 grid(divided_up(args.n, kThreads * 8), args.rows);
    launch(residual_kernel<decltype(t)>, grid, kThreads, 0, on.stream, on.overlap, args);
  });
}

}  // namespace sluice
