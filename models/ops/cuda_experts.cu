#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_routing.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256;
constexpr int kRouteWarps = 8;  // of a block, each with a row
constexpr int kScoresPerLane = kMaxExperts / kWarp;

// A warp's choice among a row's scores: lane l holds those of experts l, l + 32, ...
struct Scores {
  float of[kScoresPerLane];

  // The best score of the first `used` of each lane, ties to the lower id. What is not a number is
  // taken last.
  __device__ int best(int used) const {
    float score = -INFINITY;
    int id = kMaxExperts;
#pragma unroll
    for (int i = 0; i < kScoresPerLane; ++i)
      if (i < used && (of[i] > score || (id == kMaxExperts && of[i] == -INFINITY))) {
        score = of[i];
        id = i * kWarp + static_cast<int>(threadIdx.x % kWarp);
      }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, score, offset);
      const int other_id = __shfl_xor_sync(kAllLanes, id, offset);
      if (other > score || (other == score && other_id < id)) {
        score = other;
        id = other_id;
      }
    }
    return id;
  }
};

template <typename T>
__global__ void __launch_bounds__(kRouteWarps* kWarp) route_kernel(const RouteArgs args) {
  wait_for_previous();
  let_next_begin();
  const int lane = threadIdx.x % kWarp;
  const std::uint32_t row = blockIdx.x * kRouteWarps + threadIdx.x / kWarp;
  if (row >= args.rows) return;
  const T* scores = static_cast<const T*>(args.scores) + std::size_t{row} * args.experts;
  const auto count = static_cast<int>(args.experts), chosen = static_cast<int>(args.per_token);

  // Lane i gets the i-th of the chosen.
  int mine = kMaxExperts;
  if (args.given) {
    if (lane < chosen) mine = args.given[std::size_t{row} * args.per_token + lane];
  } else {
    // Taken ones leave the range of numbers, so that all of a row are different whatever its scores.
    const int used = (count + kWarp - 1) / kWarp;
    Scores left;
#pragma unroll
    for (int i = 0; i < kScoresPerLane; ++i) {
      const int id = i * kWarp + lane;
      const float score = id < count ? to_float(scores[id]) : NAN;
      left.of[i] = id < count && isnan(score) ? -INFINITY : score;
    }
    for (int rank = 0; rank < chosen; ++rank) {
      const int best = left.best(used);
      if (lane == rank) mine = best;
#pragma unroll
      for (int i = 0; i < kScoresPerLane; ++i)
        if (i < used && best == i * kWarp + lane) left.of[i] = NAN;
    }
  }
  const float weight = weight_of_chosen(args, scores, mine);

  int place = 0;
  for (int other = 0; other < chosen; ++other)
    place += __shfl_sync(kAllLanes, mine, other) < mine ? 1 : 0;
  if (lane < chosen) {
    const std::size_t at = std::size_t{row} * args.per_token + place;
    args.ids[at] = mine;
    args.weights[at] = weight;
    if (args.host_ids) args.host_ids[at] = mine;
    if (args.host_weights) args.host_weights[at] = weight;
  }
  if (!args.done) return;
  __threadfence_system();
  __syncwarp();
  if (lane == 0) *static_cast<volatile std::uint32_t*>(args.done + row) = args.done_value;
}

__global__ void place_experts_kernel(const PlaceExpertsArgs args) {
  wait_for_previous();
  let_next_begin();
  if (threadIdx.x < args.count) args.table[args.ids[threadIdx.x]] = args.slabs[threadIdx.x];
}

// residual = round(residual + round(sum)) of eight columns.
template <typename T>
__device__ void add_to_residual(const float (&sums)[8], T* residual, std::uint32_t column,
                                std::uint32_t columns) {
  Eight<T> out = load_eight(residual, column, columns);
#pragma unroll
  for (int e = 0; e < 8; ++e) out.v[e] = from_float<T>(to_float(out.v[e]) + rounded<T>(sums[e]));
  store_eight(residual, column, columns, out);
}

// The kernels below take eight columns of a row to a thread; hidden is a multiple of 8, or the loads
// and stores of the last eight look at each one.

template <typename T>
__global__ void __launch_bounds__(kThreads) combine_kernel(const CombineArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t column = (blockIdx.y * kThreads + threadIdx.x) * 8, row = blockIdx.x;
  if (column >= args.hidden) return;
  float sums[8] = {};
  for (std::uint32_t rank = 0; rank < args.per_token; ++rank) {
    const std::size_t pair = std::size_t{row} * args.per_token + rank;
    const float weight = args.weights[pair];
    const Eight<T> y =
        load_eight(static_cast<const T*>(args.pairs) + pair * args.hidden, column, args.hidden);
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[e] += weighted<T>(weight, to_float(y.v[e]));
  }
  add_to_residual(sums, static_cast<T*>(args.residual) + std::size_t{row} * args.hidden, column,
                  args.hidden);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) add_sums_kernel(const AddSumsArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t column = (blockIdx.y * kThreads + threadIdx.x) * 8;
  if (column >= args.hidden) return;
  const std::size_t row = std::size_t{blockIdx.x} * args.hidden;
  float sums[8];
  load_eight(args.sums + row, DType::f32, column, args.hidden, sums);
  add_to_residual(sums, static_cast<T*>(args.residual) + row, column, args.hidden);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) gather_rows_kernel(const GatherRowsArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t column = (blockIdx.y * kThreads + threadIdx.x) * 8, i = blockIdx.x;
  if (column >= args.hidden) return;
  const std::size_t row = static_cast<std::uint32_t>(args.pairs[i]) / args.per_token;
  store_eight(static_cast<T*>(args.out) + std::size_t{i} * args.hidden, column, args.hidden,
              load_eight(static_cast<const T*>(args.x) + row * args.hidden, column, args.hidden));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) add_rows_kernel(const AddRowsArgs args) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t column = (blockIdx.y * kThreads + threadIdx.x) * 8, i = blockIdx.x;
  if (column >= args.hidden) return;
  const auto pair = static_cast<std::uint32_t>(args.pairs[i]);
  const float weight = args.weights[pair];
  float* const sums = args.sums + std::size_t{pair / args.per_token} * args.hidden;
  const Eight<T> y =
      load_eight(static_cast<const T*>(args.y) + std::size_t{i} * args.hidden, column, args.hidden);
  Eight<float> out = load_eight(sums, column, args.hidden);
#pragma unroll
  for (int e = 0; e < 8; ++e) out.v[e] += weighted<T>(weight, to_float(y.v[e]));
  store_eight(sums, column, args.hidden, out);
}

std::uint32_t column_blocks(std::uint32_t hidden) { return divided_up(hidden, kThreads * 8); }

}  // namespace

void cuda_route(const RouteArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(route_kernel<decltype(t)>, divided_up(args.rows, kRouteWarps), kRouteWarps * kWarp, 0,
           on.stream, on.overlap, args);
  });
}

void cuda_place_experts(const PlaceExpertsArgs& args, const CudaLaunch& on) {
  static_assert(PlaceExpertsArgs::kMost <= kWarp);
  launch(place_experts_kernel, 1, kWarp, 0, on.stream, on.overlap, args);
}

void cuda_combine(const CombineArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(combine_kernel<decltype(t)>, dim3(args.rows, column_blocks(args.hidden)), kThreads, 0,
           on.stream, on.overlap, args);
  });
}

void cuda_gather_rows(const GatherRowsArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(gather_rows_kernel<decltype(t)>, dim3(args.count, column_blocks(args.hidden)), kThreads,
           0, on.stream, on.overlap, args);
  });
}

void cuda_add_rows(const AddRowsArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(add_rows_kernel<decltype(t)>, dim3(args.count, column_blocks(args.hidden)), kThreads, 0,
           on.stream, on.overlap, args);
  });
}

void cuda_clear_sums(const ClearSumsArgs& args, const CudaLaunch& on) {
  SLUICE_CUDA_CHECK(cudaMemsetAsync(
      args.sums, 0, std::size_t{args.rows} * args.hidden * sizeof(float), on.stream));
}

void cuda_add_sums(const AddSumsArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    launch(add_sums_kernel<decltype(t)>, dim3(args.rows, column_blocks(args.hidden)), kThreads, 0,
           on.stream, on.overlap, args);
  });
}

}  // namespace sluice
