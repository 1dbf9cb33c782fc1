// A layer's experts for one row, in two kernels behind the router's: each block makes the choice itself, so
// that nothing waits for a kernel that chooses; the second one adds the experts' results up. Weights are
// under way in shared memory, brought by bulk copies.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_bulk_fifo.cuh"
#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_few_rows.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_routing.cuh"

namespace sluice {
namespace {

struct ChosenArgs {
  RouteArgs route;
  ExpertPairsArgs pairs;
  void* residual = nullptr;
  int slots = 0;  // groups of rows under way
};

template <typename T>
using Format = NativeWeights<T>;

// The order of a pair's sums is that of cuda_expert_pairs.cu: eight warps share the columns of gate and up,
// four those of down.
template <typename T>
using GateUpStep = WeightStep<Format<T>, 8>;

// A block's warps are teams, each with an expert of its own.
constexpr int kTeams = 4, kTeamWarps = 4;
constexpr int kDownThreads = kTeams * kTeamWarps * kWarp;
template <typename T>
struct TeamStep : WeightStep<Format<T>, kTeamWarps> {
  using Step = WeightStep<Format<T>, kTeamWarps>;
  __device__ static int first_of_warp() {
    return threadIdx.x / kWarp % kTeamWarps * Step::kPieces * Step::kSpan;
  }
};

// Groups of 16 whole rows of one expert under way in shared memory, one to a slot. They are one or two bulk
// copies: to ask for each row by itself takes as long as memory does, as a warp asks for one at a time.
class GroupRing {
 public:
  static constexpr int kMostSlots = 8;

  // By all threads of the block; `warps` of them read a group.
  __device__ GroupRing(unsigned char* shared, int slots, std::uint32_t group_bytes, int warps)
      : at_(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
        slots_(static_cast<std::uint32_t>(slots)),
        bytes_(group_bytes) {
    __shared__ unsigned long long barriers[2 * kMostSlots];
    full_ = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    empty_ = full_ + kMostSlots * 8;
    if (threadIdx.x == 0) {
      for (int i = 0; i < slots; ++i) {
        Mbarrier::init(full_ + i * 8, 1);
        Mbarrier::init(empty_ + i * 8, warps);
      }
      fence_inits();
    }
    __syncthreads();
  }

  // By one thread: asks for the block's i-th group, in parts of equal size.
  template <int kParts>
  __device__ void ask(std::uint32_t i, const std::byte* const (&parts)[kParts]) const {
    const std::uint32_t slot = i % slots_, part_bytes = bytes_ / kParts;
    Mbarrier::wait(empty_ + slot * 8, i / slots_ % 2 ^ 1);
    Mbarrier::arrive_expecting(full_ + slot * 8, bytes_);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      copy(at_ + slot * bytes_ + part * part_bytes, parts[part], part_bytes, full_ + slot * 8);
  }
  // Waits for the i-th group and says where it is.
  __device__ uint32_t await(std::uint32_t i) const {
    const std::uint32_t slot = i % slots_;
    Mbarrier::wait(full_ + slot * 8, i / slots_ % 2);
    return at_ + slot * bytes_;
  }
  // By all lanes of a warp that has read it.
  __device__ void release(std::uint32_t i) const {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) Mbarrier::arrive(empty_ + i % slots_ * 8);
  }

 private:
  __device__ static void copy(uint32_t to, const std::byte* from, uint32_t bytes, uint32_t full) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(full)
        : "memory");
#endif
  }
  __device__ static void fence_inits() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  uint32_t at_, full_, empty_;
  std::uint32_t slots_, bytes_;
};

// sums += a group of rows of k weights, beginning at `group`, times x. Rows lie in the same banks, so every
// other one's pieces are read in the opposite order.
template <typename T, typename Step, typename X>
__device__ inline void multiply_group(float (&sums)[1][4], uint32_t group, std::uint32_t k,
                                      const X& x) {
  using Pieces = typename Format<T>::Piece[Step::kPieces];
  static_assert(Step::kPieces == 2 && Step::kSpan * sizeof(T) == 64);
  const std::uint32_t lane = threadIdx.x % kWarp, row = lane / 4;
  const bool swaps = row % 2 != 0;
  const uint32_t row_bytes = k * sizeof(T);
  const uint32_t mine =
      group + row * row_bytes + Step::first_of_warp() * uint32_t(sizeof(T)) + lane % 4 * 16;
  const auto load = [swaps](Pieces& pieces, uint32_t at) {
    const uint4 a = shared_words(at + (swaps ? 64 : 0)), b = shared_words(at + (swaps ? 0 : 64));
    pieces[0].bits = swaps ? b : a;
    pieces[1].bits = swaps ? a : b;
  };
#pragma unroll 4
  for (std::uint32_t weight = 0; weight < k; weight += Step::kWeights) {
    Pieces upper, lower;
    load(upper, mine + weight * sizeof(T));
    load(lower, mine + 8 * row_bytes + weight * sizeof(T));
#pragma unroll
    for (int p = 0; p < Step::kPieces; ++p) {
      uint4 eight = {};
      x.load(eight, 0, static_cast<int>(weight) + p * Step::kSpan, 0);
      Format<T>::for_fragments(upper[p], lower[p], [&](int i, const FragmentA& a) {
        mma(sums[0], a, {word_of(eight, 2 * i), word_of(eight, 2 * i + 1)}, T{});
      });
    }
  }
}

template <typename T, typename Step>
using StagedOf = StagedRows<T, Format<T>, Step>;

__host__ __device__ inline std::uint32_t group_bytes(std::uint32_t k) { return kGroupRows * k * 2; }

template <typename T>
__host__ __device__ std::size_t gate_up_behind(const ExpertShape& shape) {
  return PartialSums<GateUpStep<T>::kWarps, 1>::bytes(1) +
         StagedOf<T, GateUpStep<T>>::width(shape.hidden) * sizeof(T);
}

// inner = round(round(silu(gate x)) * up x) of each chosen expert. A group is 8 rows of gate and those of up
// that belong to them.
template <typename T>
__global__ void __launch_bounds__(GateUpStep<T>::kThreads + kWarp, 1)
    chosen_gate_up_kernel(const ChosenArgs args) {
  using Step = GateUpStep<T>;
  using Staged = StagedOf<T, Step>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Choice choice;
  const ExpertShape& shape = args.pairs.shape;
  const std::uint32_t hidden = shape.hidden, groups = shape.inter / 8;
  const std::uint32_t items = args.route.per_token * groups;
  unsigned char* const behind = shared + args.slots * group_bytes(hidden);
  T* const staged = reinterpret_cast<T*>(behind + PartialSums<Step::kWarps, 1>::bytes(1));

  const Chooser<T, Step::kThreads> choose(args.route, args.pairs.table);
  const GroupRing ring(shared, args.slots, group_bytes(hidden), Step::kWarps);
  wait_for_previous();
  let_next_begin();
  choose(choice);
  if (threadIdx.x >= Step::kThreads) {
    if (threadIdx.x != Step::kThreads) return;
    for (std::uint32_t i = 0, item = blockIdx.x; item < items; ++i, item += gridDim.x) {
      const std::byte* const gate = choice.slabs[item / groups] + shape.gate_up +
                                    std::size_t{item % groups} * 8 * hidden * sizeof(T);
      ring.ask<2>(i, {gate, gate + std::size_t{shape.inter} * hidden * sizeof(T)});
    }
    return;
  }

  for (std::uint32_t i = threadIdx.x * 8; i < hidden; i += Step::kThreads * 8)
    *reinterpret_cast<Eight<T>*>(staged + Staged::place(i)) =
        *reinterpret_cast<const Eight<T>*>(static_cast<const T*>(args.pairs.x) + i);
  sync_first<Step::kThreads>();

  const Staged x(staged, 1, hidden);
  PartialSums<Step::kWarps, 1> partial(reinterpret_cast<float*>(behind), 1);
  float sums[1][4] = {};
  std::uint32_t first_finisher = 0;  // the warps take turns
  for (std::uint32_t i = 0, item = blockIdx.x; item < items; ++i, item += gridDim.x) {
    multiply_group<T, Step>(sums, ring.await(i), hidden, x);
    ring.release(i);
    partial.put(sums);
    sync_first<Step::kThreads>();
    const std::uint32_t mine = (threadIdx.x - first_finisher) % Step::kThreads;
    first_finisher += kWarp;
    if (mine >= 8) continue;
    const float gate = rounded<T>(partial.total(mine, 0));
    const float up = rounded<T>(partial.total(mine + 8, 0));
    static_cast<T*>(args.pairs.inner)[item * 8 + mine] = from_float<T>(rounded<T>(silu(gate)) * up);
  }
}

// What a block has in shared memory behind the groups.
template <typename T>
struct DownAreas {
  std::size_t results, staged, end;  // in bytes; the warps' sums are the first

  __host__ __device__ explicit DownAreas(const ExpertPairsArgs& args)
      : results(sizeof(float) * args.per_token * kTeamWarps * kGroupRows),
        staged(results + sizeof(float) * args.per_token * kGroupRows),
        end(staged +
            sizeof(T) * args.per_token * StagedOf<T, TeamStep<T>>::width(args.shape.inter)) {}
};

// residual += the weighted results of the chosen, by rising id.
template <typename T>
__global__ void __launch_bounds__(kDownThreads + kWarp, 1)
    chosen_down_kernel(const ChosenArgs args) {
  using Step = TeamStep<T>;
  using Staged = StagedOf<T, Step>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Choice choice;
  __shared__ float weights[kMaxExpertsPerToken];  // by rank
  const ExpertPairsArgs& pairs = args.pairs;
  const std::uint32_t inter = pairs.shape.inter, groups = pairs.shape.hidden / kGroupRows;
  // What follows reads nothing but weights before it waits. The scores were there before the kernel
  // ahead began.
  let_next_begin();
  const Chooser<T, kDownThreads> choose(args.route, pairs.table);
  const GroupRing ring(shared, args.slots, group_bytes(inter), kTeamWarps);
  choose(choice);
  if (threadIdx.x >= kDownThreads) {
    std::uint32_t i = 0;
    for (std::uint32_t group = blockIdx.x; group < groups; group += gridDim.x)
      for (std::uint32_t expert = 0; expert < pairs.per_token; ++expert, ++i)
        if (threadIdx.x == kDownThreads)
          ring.ask<1>(i, {choice.slabs[expert] + pairs.shape.down +
                          std::size_t{group} * group_bytes(inter)});
    wait_for_previous();
    return;
  }
  const DownAreas<T> areas(pairs);
  unsigned char* const behind = shared + args.slots * group_bytes(inter);
  float* const partial = reinterpret_cast<float*>(behind);  // [experts][kTeamWarps][16]
  float* const results = reinterpret_cast<float*>(behind + areas.results);  // [experts][16]
  T* const staged = reinterpret_cast<T*>(behind + areas.staged);
  const std::uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (warp == 0) {
    const int mine = choice.by_rank[min(lane, pairs.per_token - 1)];
    const float weight =
        weight_of_chosen(args.route, static_cast<const T*>(args.route.scores), mine);
    if (lane < pairs.per_token) weights[lane] = weight;
  }
  wait_for_previous();
  const std::uint32_t width = Staged::width(inter);
  for (std::uint32_t i = threadIdx.x * 8; i < pairs.per_token * inter; i += kDownThreads * 8)
    *reinterpret_cast<Eight<T>*>(staged + i / inter * width + Staged::place(i % inter)) =
        *reinterpret_cast<const Eight<T>*>(static_cast<const T*>(pairs.inner) + i);
  sync_first<kDownThreads>();

  // The i-th group of the block is that of team i % kTeams; `first` is the first expert's.
  std::uint32_t first = 0;
  for (std::uint32_t group = blockIdx.x; group < groups;
       group += gridDim.x, first += pairs.per_token) {
    for (std::uint32_t expert = (warp / kTeamWarps - first) % kTeams; expert < pairs.per_token;
         expert += kTeams) {
      const Staged x(staged + expert * width, 1, inter);
      float sums[1][4] = {};
      multiply_group<T, Step>(sums, ring.await(first + expert), inter, x);
      ring.release(first + expert);
      float* const of_warp = partial + (expert * kTeamWarps + warp % kTeamWarps) * kGroupRows;
      if (lane % 4 == 0) {
        of_warp[lane / 4] = sums[0][0];
        of_warp[lane / 4 + 8] = sums[0][2];
      }
    }
    T* const residual = static_cast<T*>(args.residual) + group * kGroupRows;
    const float before = threadIdx.x < kGroupRows ? to_float(residual[threadIdx.x]) : 0.0f;
    sync_first<kDownThreads>();
    if (threadIdx.x < pairs.per_token * kGroupRows) {
      const std::uint32_t expert = threadIdx.x / kGroupRows;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kTeamWarps; ++w)
        sum += partial[(expert * kTeamWarps + w) * kGroupRows + threadIdx.x % kGroupRows];
      results[threadIdx.x] = weighted<T>(weights[choice.rank_of[expert]], rounded<T>(sum));
    }
    sync_first<kDownThreads>();
    if (threadIdx.x >= kGroupRows) continue;
    float sum = 0;
    for (std::uint32_t expert = 0; expert < pairs.per_token; ++expert)
      sum += results[expert * kGroupRows + threadIdx.x];
    residual[threadIdx.x] = from_float<T>(before + rounded<T>(sum));
  }
}

// Groups that a block of `teams` may have under way which needs `behind` bytes more; 0: fewer than keep it
// busy. A slot is always the same team's: nobody waits for what comes into it behind what another one
// still waits for.
int slots_of(const CudaLaunch& on, std::size_t behind, std::uint32_t k, int teams) {
  constexpr std::size_t kVariables = sizeof(Choice) + (2 << 10);
  const std::size_t used = behind + kVariables;
  const std::size_t most = on.shared_of_block < used ? 0 : on.shared_of_block - used;
  const int slots = static_cast<int>(most / group_bytes(k));
  return slots < 3 ? 0 : std::min(slots, GroupRing::kMostSlots) / teams * teams;
}
template <typename T>
int gate_up_slots(const ExpertPairsArgs& args, const CudaLaunch& on) {
  return slots_of(on, gate_up_behind<T>(args.shape), args.shape.hidden, 1);
}
template <typename T>
int down_slots(const ExpertPairsArgs& args, const CudaLaunch& on) {
  return slots_of(on, DownAreas<T>(args).end, args.shape.inter, kTeams);
}

template <typename T>
void launch_chosen(ChosenArgs args, const CudaLaunch& on) {
  static const cudaError_t gate_up_allowed = allow_shared(chosen_gate_up_kernel<T>);
  static const cudaError_t down_allowed = allow_shared(chosen_down_kernel<T>);
  SLUICE_CUDA_CHECK(gate_up_allowed);
  SLUICE_CUDA_CHECK(down_allowed);
  const ExpertShape& shape = args.pairs.shape;
  args.slots = gate_up_slots<T>(args.pairs, on);
  launch(chosen_gate_up_kernel<T>, std::min(args.route.per_token * shape.inter / 8, on.processors),
         GateUpStep<T>::kThreads + kWarp,
         args.slots * group_bytes(shape.hidden) + gate_up_behind<T>(shape), on.stream, on.overlap,
         args);
  args.slots = down_slots<T>(args.pairs, on);
  launch(chosen_down_kernel<T>, std::min(shape.hidden / kGroupRows, on.processors),
         kDownThreads + kWarp, args.slots * group_bytes(shape.inter) + DownAreas<T>(args.pairs).end,
         on.stream, on.overlap, args);
}

}  // namespace

bool cuda_can_route_experts(const RoutedExpertsArgs& args, const CudaLaunch& on) {
  const ExpertPairsArgs pairs = args.pairs();
  const ExpertShape& shape = pairs.shape;
  // The choice is made in shared memory, for nobody else.
  if (args.route.host_ids || args.route.host_weights || args.route.done ||
      !args.router.keeps_normed)
    return false;
  if (!on.overlap || pairs.rows != 1 || pairs.type == DType::f32 ||
      pairs.type != shape.weight_type || shape.encoding != Encoding::native ||
      !cuda_can_norm_linear(args.router.linear))
    return false;
  using T = __nv_bfloat16;  // all that is asked here is the same for the other type
  return shape.hidden % GateUpStep<T>::kWeights == 0 && shape.inter % TeamStep<T>::kWeights == 0 &&
         gate_up_slots<T>(pairs, on) > 0 && down_slots<T>(pairs, on) > 0;
}

void cuda_routed_experts(const RoutedExpertsArgs& args, const CudaLaunch& on) {
  cuda_norm_linear(args.router, on);
  const ChosenArgs chosen{.route = args.route, .pairs = args.pairs(), .residual = args.residual};
  with_type(args.route.type, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, float>) launch_chosen<T>(chosen, on);
  });
}

}  // namespace sluice
