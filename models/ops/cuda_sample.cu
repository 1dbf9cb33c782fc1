#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/philox.hpp"

namespace sluice {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr std::uint32_t kPart = kThreads * 8;  // logits of a block

// Unsigned numbers in the order of the floats.
__device__ inline std::uint32_t ordered(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_ordered(std::uint32_t order) {
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// The combination over the block of one value of each thread, in every thread, in a fixed order.
template <typename V, typename Combine>
__device__ V combine_block(V mine, Combine combine) {
  __shared__ V parts[kWarps];
  static_assert(kWarps == kWarp);
  const auto combine_warp = [&](V value) {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      value = combine(value, value.of_lane(offset));
    return value;
  };
  mine = combine_warp(mine);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  mine = combine_warp(parts[threadIdx.x % kWarp]);
  __syncthreads();
  return mine;
}

struct Best : CudaBest {
  __device__ Best of_lane(int offset) const {
    return {{__shfl_xor_sync(kAllLanes, logit, offset), __shfl_xor_sync(kAllLanes, id, offset),
             __shfl_xor_sync(kAllLanes, is_finite, offset)}};
  }
};

struct Likelier {
  __device__ Best operator()(Best a, Best b) const {
    Best best = a;
    const bool other =
        a.id < 0 || (b.id >= 0 && (b.logit > a.logit || (b.logit == a.logit && b.id < a.id)));
    if (other) best = b;
    best.is_finite = a.is_finite && b.is_finite;
    return best;
  }
};

struct Mass {
  double weight;
  std::uint32_t count;

  __device__ Mass of_lane(int offset) const {
    return {__shfl_xor_sync(kAllLanes, weight, offset), __shfl_xor_sync(kAllLanes, count, offset)};
  }
};

struct Add {
  __device__ Mass operator()(Mass a, Mass b) const {
    return {a.weight + b.weight, a.count + b.count};
  }
};

// One row's logits as a block of threads sees them.
template <typename T>
struct Row {
  const T* logits;
  std::uint32_t vocab;
  const std::int32_t* suppressed;
  std::uint32_t suppressed_count;
  float largest, temperature;

  __device__ bool is_suppressed(std::uint32_t id) const {
    for (std::uint32_t s = 0; s < suppressed_count; ++s)
      if (suppressed[s] == std::int32_t(id)) return true;
    return false;
  }
  __device__ double weight(float logit) const {
    return double(expf((logit - largest) / temperature));
  }
  // What the tokens hold whose logits are at least `least`.
  __device__ Mass at_least(std::uint32_t least) const {
    Mass mine{0, 0};
    for (std::uint32_t id = threadIdx.x; id < vocab; id += kThreads) {
      const float logit = to_float(logits[id]);
      if (ordered(logit) < least || is_suppressed(id)) continue;
      mine.weight += weight(logit);
      ++mine.count;
    }
    return combine_block(mine, Add{});
  }
  // The largest logit, as ordered() has it, for whose mass `enough` holds; 0 when for none.
  template <typename Enough>
  __device__ std::uint32_t largest_where(Enough enough) const {
    std::uint32_t found = 0;
    for (std::uint32_t bit = 0x80000000u; bit != 0; bit /= 2)
      if (enough(at_least(found | bit))) found |= bit;
    return found;
  }
  // The n-th, from 0, of the tokens with this very logit, by ascending id.
  __device__ std::int32_t tied(std::uint32_t order, std::uint32_t n) const {
    __shared__ std::int32_t chosen;
    __shared__ std::uint32_t before[kThreads];
    const std::uint32_t share = (vocab + kThreads - 1) / kThreads;
    const std::uint32_t begin = threadIdx.x * share, end = min(begin + share, vocab);
    const auto is_tied = [&](std::uint32_t id) {
      return ordered(to_float(logits[id])) == order && !is_suppressed(id);
    };
    std::uint32_t mine = 0;
    for (std::uint32_t id = begin; id < end; ++id) mine += is_tied(id);
    before[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint32_t sum = 0;
      for (int t = 0; t < kThreads; ++t) {
        const std::uint32_t count = before[t];
        before[t] = sum;
        sum += count;
      }
      n = min(n, sum - 1);
      for (int t = kThreads - 1; t >= 0; --t)
        if (before[t] <= n) {
          std::uint32_t left = n - before[t];
          std::uint32_t id = t * share;
          while (!is_tied(id) || left-- != 0) ++id;
          chosen = std::int32_t(id);
          break;
        }
    }
    __syncthreads();
    return chosen;
  }
};

// The filters each leave a prefix of the tokens from the likeliest down, so what counts of them is
// the mass that is left; the choice is where the running sum first exceeds its share of it.
template <typename T>
__device__ std::int32_t draw(const Row<T>& row, const SamplingParams& params, double random) {
  std::uint32_t least = 0;
  if (params.top_k > 0 && std::uint32_t(params.top_k) < row.vocab)
    least = row.largest_where([&](Mass m) { return m.count >= std::uint32_t(params.top_k); });
  double total = row.at_least(least).weight;
  if (params.top_p < 1) {
    const double enough = params.top_p * total;
    const std::uint32_t last =
        max(least, row.largest_where([&](Mass m) { return m.weight >= enough; }));
    const double above = last == 0xffffffffu ? 0 : row.at_least(last + 1).weight;
    const double each = row.weight(from_ordered(last));
    const double needed = each > 0 ? ceil((enough - above) / each) : 1;
    total = min(total, above + each * max(needed, 1.0));
  }
  if (params.min_p > 0) {
    const float edge = row.largest + row.temperature * logf(params.min_p);
    total = min(total, row.at_least(ordered(edge)).weight);
  }
  const double target = random * total;
  const std::uint32_t at = row.largest_where([&](Mass m) { return m.weight > target; });
  const double above = at == 0xffffffffu ? 0 : row.at_least(at + 1).weight;
  const double each = row.weight(from_ordered(at));
  return row.tied(at, each > 0 ? std::uint32_t(max((target - above) / each, 0.0)) : 0);
}

// A block finds the likeliest token of kPart; the last of a row's blocks to end chooses.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const SampleArgs args, const CudaSampleSpace space) {
  wait_for_previous();
  let_next_begin();
  const std::uint32_t at = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
  const std::int32_t sequence = args.sequences[at];
  const SamplingParams params = args.params[sequence];
  const auto generated = std::uint32_t(args.generated[sequence]);
  Row<T> row{static_cast<const T*>(args.logits) + std::size_t{at} * args.vocab,
             args.vocab,
             args.stop_ids,
             generated < params.min_new_tokens ? args.stop_count : 0,
             0,
             params.temperature};
  constexpr Best kNone{{0, -1, 1}};
  Best mine = kNone;
  const std::uint32_t first = part * kPart + threadIdx.x * 8;
  if (first < args.vocab) {
    const Eight<T> logits = load_eight(row.logits, first, args.vocab);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const std::uint32_t id = first + e;
      if (id >= args.vocab) continue;
      const float logit = to_float(logits.v[e]);
      const Best one{{logit, row.is_suppressed(id) ? -1 : std::int32_t(id), isfinite(logit)}};
      mine = Likelier{}(mine, one);
    }
  }
  mine = combine_block(mine, Likelier{});
  __shared__ bool ends_last;
  if (threadIdx.x == 0) {
    space.best[std::size_t{at} * parts + part] = mine;
    __threadfence();
    ends_last = atomicAdd(space.arrived + at, 1u) == parts - 1;
  }
  __syncthreads();
  if (!ends_last) return;
  __threadfence();
  mine = kNone;
  for (std::uint32_t p = threadIdx.x; p < parts; p += kThreads) {
    const CudaBest& other = space.best[std::size_t{at} * parts + p];
    mine = Likelier{}(mine, {{__ldcg(&other.logit), __ldcg(&other.id), __ldcg(&other.is_finite)}});
  }
  const Best best = combine_block(mine, Likelier{});
  std::int32_t token = best.id;
  if (best.is_finite && params.temperature > 0) {
    row.largest = best.logit;
    token = draw(row, params, uniform(params.seed, generated));
  }
  if (threadIdx.x != 0) return;
  space.arrived[at] = 0;  // for the next launch
  args.chosen[at] = best.is_finite ? token : kNotFinite;
  args.next_tokens[sequence] = best.is_finite ? token : 0;
  args.lengths[sequence] += 1;
  args.generated[sequence] += 1;
}

}  // namespace

std::uint32_t cuda_sample_parts(std::uint32_t vocab) { return (vocab + kPart - 1) / kPart; }

void cuda_sample(const SampleArgs& args, const CudaSampleSpace& space, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    const dim3 grid(args.rows, cuda_sample_parts(args.vocab));
    launch(sample_kernel<decltype(t)>, grid, kThreads, 0, on.stream, on.overlap, args, space);
  });
}

}  // namespace sluice
