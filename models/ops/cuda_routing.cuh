// The choice of a row's experts and what is made of it, for every kernel that chooses or weighs: the same
// wherever it happens.
#pragma once
#include "models/ops/cuda_common.cuh"
#include "models/ops/expert_args.hpp"

namespace sluice {

// Scores are read where a kernel may begin before the one ahead has ended: never from the first-level cache.
template <typename T>
__device__ inline float score_at(const T* scores, std::uint32_t id) {
  return to_float(__ldcg(scores + id));
}

// The weights of those chosen for a row, of which lane i has the i-th, `mine`; by a warp. `scores`: the
// row's.
template <typename T>
__device__ inline float weight_of_chosen(const RouteArgs& args, const T* scores, int mine) {
  const int lane = threadIdx.x % kWarp, count = static_cast<int>(args.experts);
  float largest = -INFINITY;
  for (int id = lane; id < count; id += kWarp) largest = fmaxf(largest, score_at(scores, id));
  largest = warp_max(largest);
  float sum = 0;
  for (int id = lane; id < count; id += kWarp) sum += expf(score_at(scores, id) - largest);
  sum = warp_sum(sum);
  const bool has = lane < static_cast<int>(args.per_token);
  float weight = has ? expf(score_at(scores, mine) - largest) / sum : 0.0f;
  if (args.normalise) weight /= warp_sum(weight);
  return rounded<T>(weight);
}

// A result by its weight, rounded before it is added to anything, in f32 as well.
template <typename T>
__device__ inline float weighted(float weight, float y) {
  return rounded<T>(__fmul_rn(weight, y));
}

// The experts chosen for one row, in a block's shared memory.
struct Choice {
  std::int32_t by_rank[kMaxExpertsPerToken];  // the best first; as given, where they are
  const std::byte* slabs_by_rank[kMaxExpertsPerToken];
  std::int32_t rank_of[kMaxExpertsPerToken];    // by rising id
  const std::byte* slabs[kMaxExpertsPerToken];  // likewise
  alignas(16) std::uint32_t keys[kMaxExperts];
};

// Makes a row's choice by all threads of a block, in a fraction of the time that a warp takes: each
// expert counts those that come before it. Made before the scores are there: it looks up the slabs.
template <typename T, int kThreads>
class Chooser {
  static_assert(sizeof(T) == 2 && kThreads % kWarp == 0);

 public:
  __device__ Chooser(const RouteArgs& args, ExpertTable table) : args_(args), table_(table) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::uint32_t id = expert_of(turn);
      if (threadIdx.x < kThreads && id < args.experts) slabs_[turn] = table[id];
    }
  }

  // By all threads of the block, of which the first kThreads work.
  __device__ void operator()(Choice& choice) const {
    if (args_.given)
      take_given(choice);
    else
      choose(choice);
    __syncthreads();
  }

 private:
  static constexpr int kLanes = 2;  // that count for one expert
  static constexpr int kTurns = kLanes * int(kMaxExperts) / kThreads;

  __device__ static std::uint32_t expert_of(int turn) {
    return (turn * kThreads + threadIdx.x) / kLanes;
  }

  // Ids that are given ascend.
  __device__ void take_given(Choice& choice) const {
    if (threadIdx.x >= args_.per_token) return;
    const std::int32_t id = __ldcg(args_.given + threadIdx.x);
    choice.by_rank[threadIdx.x] = id;
    choice.rank_of[threadIdx.x] = static_cast<std::int32_t>(threadIdx.x);
    choice.slabs[threadIdx.x] = table_[id];
  }

  // Greater for the better score and then for the lower id; never 0. What is not a number comes last.
  __device__ static std::uint32_t key_of(float value, std::uint32_t id) {
    const T ordered = from_float<T>(isnan(value) ? -INFINITY : value == 0 ? 0.0f : value);
    const std::uint32_t bits = *reinterpret_cast<const unsigned short*>(&ordered);
    return (bits & 0x8000u ? ~bits & 0xffffu : bits | 0x8000u) << 16 | (0xffffu - id);
  }

  __device__ void choose(Choice& choice) const {
    const T* const scores = static_cast<const T*>(args_.scores);
    const std::uint32_t padded = divided_up(args_.experts, 4 * kLanes) * 4 * kLanes;
    if (threadIdx.x < kThreads)
      for (std::uint32_t id = threadIdx.x; id < padded; id += kThreads)
        choice.keys[id] = id < args_.experts ? key_of(score_at(scores, id), id) : 0;
    __syncthreads();
    if (threadIdx.x < kThreads) {
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        if (std::uint32_t(turn * kThreads / kLanes) >= args_.experts) break;
        const std::uint32_t id = expert_of(turn), lane = threadIdx.x % kLanes;
        const std::uint32_t mine = id < args_.experts ? choice.keys[id] : 0;
        std::uint32_t rank = 0;
#pragma unroll 4
        for (std::uint32_t i = lane * 4; i < padded; i += 4 * kLanes) {
          const auto others = *reinterpret_cast<const uint4*>(choice.keys + i);
          rank += (others.x > mine) + (others.y > mine) + (others.z > mine) + (others.w > mine);
        }
        rank += __shfl_xor_sync(kAllLanes, rank, 1);
        if (lane == 0 && id < args_.experts && rank < args_.per_token) {
          choice.by_rank[rank] = static_cast<std::int32_t>(id);
          choice.slabs_by_rank[rank] = slabs_[turn];
        }
      }
    }
    __syncthreads();
    if (threadIdx.x >= args_.per_token) return;
    const std::int32_t id = choice.by_rank[threadIdx.x];
    std::uint32_t place = 0;
    for (std::uint32_t other = 0; other < args_.per_token; ++other)
      place += choice.by_rank[other] < id ? 1 : 0;
    choice.rank_of[place] = static_cast<std::int32_t>(threadIdx.x);
    choice.slabs[place] = choice.slabs_by_rank[threadIdx.x];
  }

  const RouteArgs& args_;
  ExpertTable table_;
  const std::byte* slabs_[kTurns] = {};
};

}  // namespace sluice
