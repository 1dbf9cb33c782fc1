#include "models/ops/cuda_finish.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_weight_rows.cuh"

namespace sluice {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// A warp per output, for what the tensor cores' kernels do not take: activations in f32 or of another
// type than the weights, and rows that are no whole number of 16-byte pieces.
template <typename T, typename Row>
__global__ void __launch_bounds__(kThreads) any_rows_kernel(const LinearArgs args) {
  wait_for_previous();
  const std::uint32_t n = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const std::uint32_t row = blockIdx.y;
  if (n >= args.n) return;
  const Row weights({args.weight, args.scales, args.k}, n);
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
    with_weight_row(args.encoding, args.weight_type,
                    [&]<typename Row>(OfRow<Row>) { any_rows(any_rows_kernel<T, Row>); });
  });
}

void cuda_add_residual(const LinearArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    const dim3 grid(divided_up(args.n, kThreads * 8), args.rows);
    launch(residual_kernel<decltype(t)>, grid, kThreads, 0, on.stream, on.overlap, args);
  });
}

}  // namespace sluice
