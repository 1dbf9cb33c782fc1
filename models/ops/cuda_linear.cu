#include <algorithm>
#include <type_traits>

#include "models/ops/cuda_bulk_fifo.cuh"
#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_few_rows.cuh"
#include "models/ops/cuda_finish.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_staged_rows.cuh"

namespace sluice {
namespace {

// The warps that share the columns of a group of 16 rows of weights, and how many blocks of them a
// multiprocessor has: measured on an H200, codes take more work, and blocks fill each other's gaps.
// The number of warps changes the order of sums.
template <typename Format>
constexpr int kWarps = Format::kPieceWeights == 8 ? 16 : 8;
template <typename Format>
constexpr int kBlocks = 16 / kWarps<Format>;
template <typename Format>
using Step = WeightStep<Format, kWarps<Format>>;
template <typename T, typename Format>
using Staged = StagedRows<T, Format, Step<Format>>;

template <typename Format, bool kBulk>
constexpr int kStepBytes = kBulk ? BulkStep<Format, Step<Format>>::kBytes : Step<Format>::kBytes;

// A product and what is done to its rows before and after.
struct FewRowsArgs {
  LinearArgs linear;
  StageArgs stage;            // linear.x and the norm before it
  void* gated_out = nullptr;  // [rows, n / 2]: SiLU of the first half times the second; or null
  std::uint32_t groups = 0;   // of 16 rows of weights
  int depth = 0;              // steps of weights under way
};

// Groups of one matrix. Nearly always they are equally far apart.
template <typename Format>
class MatrixRows {
 public:
  __device__ MatrixRows(const StoredMatrix& m, std::uint32_t n, bool gated)
      : matrix_(m), n_(n), gated_(gated), whole_(n % kGroupRows == 0) {
    // A row has been gone through in whole steps.
    const std::ptrdiff_t rows = std::ptrdiff_t{gridDim.x} * (gated ? 8 : kGroupRows);
    const std::ptrdiff_t steps = Step<Format>::count(m.k) * Step<Format>::kWeights;
    codes_ = rows * (Format::codes(m, 1) - m.weight) - Format::bytes_of(int(steps));
    if constexpr (Format::kHasGroups)
      groups_ = rows * (Format::groups(m, 1) - m.scales) -
                steps / std::ptrdiff_t(kGroupWeights) * std::ptrdiff_t(sizeof(uint32_t));
  }
  __device__ LaneRows of(std::uint32_t group) const {
    return rows_of_group<Step<Format>, Format>(matrix_, n_, gated_, group);
  }
  __device__ void next(LaneRows& rows, std::uint32_t group) const {
    if (whole_)
      rows.move_on(codes_, groups_);
    else
      rows = of(group);
  }

 private:
  StoredMatrix matrix_;
  std::uint32_t n_;
  bool gated_, whole_;
  std::ptrdiff_t codes_ = 0, groups_ = 0;  // from the end of a row to the next group's
};

// What a block has in shared memory behind the weights under way; in bytes.
struct SharedAreas {
  std::size_t group_sums = 0, staged = 0, end = 0;  // the partial sums are the first
};
template <typename T, typename Format, int kTiles, bool kStaged>
__host__ __device__ SharedAreas shared_areas(const LinearArgs& args) {
  SharedAreas at;
  at.group_sums = PartialSums<kWarps<Format>, kTiles>::bytes(args.rows);
  at.staged = at.group_sums;
  if (Format::kHasGroups) at.staged += GroupSums<T, Format, Step<Format>, kTiles>::bytes(args.k);
  at.end = at.staged;
  if (kStaged) at.end += args.rows * Staged<T, Format>::width(args.k) * sizeof(T);
  return at;
}

// Blocks stay and take group after group of 16 rows of weights, reading ahead across groups and, at
// the start, while the kernel before still runs. The warps' shares of k are summed in ascending order.
template <typename T, typename Format, int kTiles, bool kStaged, bool kOneToken, bool kWholeSteps,
          bool kBulk>
__global__ void __launch_bounds__(Step<Format>::kThreads + (kBulk ? kWarp : 0), kBlocks<Format>)
    few_rows_kernel(const FewRowsArgs args) {
  using S = Step<Format>;
  extern __shared__ __align__(16) unsigned char shared[];
  const LinearArgs& linear = args.linear;
  const StoredMatrix matrix{linear.weight, linear.scales, linear.k};
  const bool gated = args.gated_out != nullptr;
  const std::uint32_t tokens = kOneToken ? 1 : linear.rows;

  const MatrixRows<Format> rows(matrix, linear.n, gated);
  const auto row_of = [&](std::uint32_t group, std::uint32_t i) {
    return row_of_group(linear.n, gated, group, i);
  };
  auto fifo = [&] {
    if constexpr (kBulk)
      return BulkFifo<Format, S, decltype(row_of)>(shared, args.depth, matrix, args.groups, row_of);
    else
      return WeightFifo<Format, S, kWholeSteps, MatrixRows<Format>>(shared, args.depth, linear.k,
                                                                    args.groups, rows);
  }();
  if constexpr (kBulk) {
    if (threadIdx.x >= S::kThreads) {
      fifo.ask();
      wait_for_previous();
      return;
    }
  }
  // What follows a product with a residual reads nothing but weights before it waits.
  if (linear.residual) let_next_begin();

  unsigned char* const behind = shared + args.depth * kStepBytes<Format, kBulk>;
  const SharedAreas areas = shared_areas<T, Format, kTiles, kStaged>(linear);
  T* const staged = reinterpret_cast<T*>(behind + areas.staged);
  if constexpr (kStaged) {
    RowStage<T, Staged<T, Format>, S::kThreads> stage(args.stage);
    wait_for_previous();
    if (!linear.residual) let_next_begin();
    stage(staged);
  } else {
    wait_for_previous();
    if (!linear.residual) let_next_begin();
  }
  const auto x = [&] {
    if constexpr (kStaged)
      return Staged<T, Format>(staged, tokens, linear.k);
    else
      return RowsInPlace<T, Format, S, kTiles, kWholeSteps>(
          tokens, linear.k, [&](std::uint32_t token) {
            return static_cast<const T*>(linear.x) + std::size_t{token} * linear.k;
          });
  }();
  GroupSums<T, Format, S, kTiles> group_sums(reinterpret_cast<float*>(behind + areas.group_sums));
  if constexpr (Format::kHasGroups && kStaged) group_sums.make(x, tokens, linear.k);
  PartialSums<kWarps<Format>, kTiles> partial(reinterpret_cast<float*>(behind), tokens);

  const std::uint32_t group_width = gated ? 8 : kGroupRows;
  const std::uint32_t width = gated ? linear.n / 2 : linear.n;
  float sums[kTiles][4] = {};
  uint4 eights[S::kPieces][kTiles] = {};
  // Of the threads, the one that finishes a group's first output. The warps take turns.
  std::uint32_t first_finisher = 0;
  static_assert(S::kThreads >= kGroupRows * int(kFewRows));
  const auto multiply = [&](std::uint32_t group, auto is_first) {
    const std::uint32_t output = (threadIdx.x - first_finisher) % S::kThreads;
    first_finisher += kWarp;
    // n of `token`, or the gate and up of it.
    const std::uint32_t mine = output % group_width, token = output / group_width;
    const std::uint32_t n = group * group_width + mine;
    const std::size_t out_at = std::size_t{token} * width + n;
    const bool finishes = token < tokens && n < width;
    const float before = finishes ? residual_at<T>(linear, out_at) : 0.0f;
    for (int weight = 0; weight < int(linear.k); weight += S::kWeights) {
      StepPieces<Format, S> step;
      fifo.take(step);
      multiply_step<is_first, kOneToken, T>(sums, step, x, weight, group_sums, eights);
    }
    partial.put(sums);
    sync_first<S::kThreads>();
    if (finishes && gated) {
      const auto y = [&](std::uint32_t row, std::uint32_t of_group) {
        const float sum = partial.total(of_group, token);
        return rounded<T>(with_bias(linear, row, Format::scaled(matrix, row, sum)));
      };
      const float gate = y(n, mine), up = y(width + n, mine + 8);
      static_cast<T*>(args.gated_out)[out_at] = from_float<T>(rounded<T>(silu(gate)) * up);
    } else if (finishes) {
      finish<T>(linear, out_at, n, Format::scaled(matrix, n, partial.total(mine, token)), before);
    }
  };
  std::uint32_t group = blockIdx.x;
  if constexpr (Format::kHasGroups && !kStaged) {
    multiply(group, std::true_type());
    group += gridDim.x;
  }
  for (; group < args.groups; group += gridDim.x) multiply(group, std::false_type());
}

bool on_tensor_cores(const LinearArgs& args) {
  return cuda_on_tensor_cores(args.type, args.weight_type, args.encoding, args.rows, args.k);
}

// Calls f.template operator()<T, Format>() with the types that the arguments' weights make.
template <typename F>
void with_format(const LinearArgs& args, const F& f) {
  with_type(args.type, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, float>) {
      switch (args.encoding) {
        case Encoding::native: return f.template operator()<T, NativeWeights<T>>();
        case Encoding::int8: return f.template operator()<T, Int8Weights<T>>();
        case Encoding::int4: return f.template operator()<T, Int4Subnormals<T>>();
      }
    }
  });
}

bool can_stage(const LinearArgs& args) {
  if (args.rows > kStagedRows) return false;
  bool can = false;
  with_format(args, [&]<typename T, typename Format>() {
    can = shared_areas<T, Format, 1, true>(args).end + kLeastSteps * Step<Format>::kBytes <=
          kMostShared;
  });
  return can;
}

template <typename T, typename Format, int kTiles, bool kStaged, bool kOneToken, bool kWholeSteps,
          bool kBulk>
void launch_steps(FewRowsArgs args, const CudaLaunch& on) {
  using S = Step<Format>;
  const auto kernel = few_rows_kernel<T, Format, kTiles, kStaged, kOneToken, kWholeSteps, kBulk>;
  static const cudaError_t allowed = allow_shared(kernel);
  SLUICE_CUDA_CHECK(allowed);
  const std::size_t behind = shared_areas<T, Format, kTiles, kStaged>(args.linear).end;
  const std::uint32_t blocks = std::min(args.groups, kBlocks<Format> * on.processors);
  args.depth = fifo_depth(on, behind, kStepBytes<Format, kBulk>, kBlocks<Format>);
  // No more steps than a block has, which leaves room beside it for a block of the next kernel.
  const std::uint32_t steps = divided_up(args.groups, blocks) * S::count(args.linear.k);
  args.depth = std::clamp(static_cast<int>(steps), kLeastSteps, args.depth);
  launch(kernel, blocks, S::kThreads + (kBulk ? kWarp : 0),
         args.depth * kStepBytes<Format, kBulk> + behind, on.stream, on.overlap, args);
}

template <typename T, typename Format, int kTiles, bool kStaged, bool kOneToken>
void launch_few_rows(const FewRowsArgs& args, const CudaLaunch& on) {
  if (args.linear.k % Step<Format>::kWeights != 0)
    return launch_steps<T, Format, kTiles, kStaged, kOneToken, false, false>(args, on);
  if constexpr (kStaged)
    if (on.overlap && BulkStep<Format, Step<Format>>::can(args.linear.k))
      return launch_steps<T, Format, kTiles, kStaged, kOneToken, true, true>(args, on);
  launch_steps<T, Format, kTiles, kStaged, kOneToken, true, false>(args, on);
}

void launch_few_rows(FewRowsArgs args, const CudaLaunch& on) {
  const LinearArgs& linear = args.linear;
  args.groups =
      args.gated_out ? divided_up(linear.n / 2, kGroupRows / 2) : divided_up(linear.n, kGroupRows);
  args.stage.x = linear.x;
  args.stage.rows = linear.rows;
  args.stage.k = linear.k;
  with_format(linear, [&]<typename T, typename Format>() {
    // Of what takes the most instructions there is a kernel with none for a second token.
    constexpr bool kHasOneToken = Format::kHasGroups;
    if (can_stage(linear) && linear.rows == 1)
      launch_few_rows<T, Format, 1, true, kHasOneToken>(args, on);
    else if (can_stage(linear))
      launch_few_rows<T, Format, 1, true, false>(args, on);
    else if (linear.rows <= kTokensPerTile)
      launch_few_rows<T, Format, 1, false, false>(args, on);
    else
      launch_few_rows<T, Format, 2, false, false>(args, on);
  });
}

FewRowsArgs with_norm(const RmsNormArgs& norm, const LinearArgs& linear) {
  FewRowsArgs args{
      .linear = linear,
      .stage = {.norm_weight = norm.weight, .norm_type = norm.weight_type, .eps = norm.eps}};
  args.linear.x = norm.x;
  return args;
}

}  // namespace

void cuda_linear_few(const LinearArgs& args, const CudaLaunch& on) {
  if (on_tensor_cores(args)) return launch_few_rows({.linear = args}, on);
  cuda_linear_any(args, on);
}

bool cuda_can_norm_linear(const LinearArgs& args) {
  return on_tensor_cores(args) && can_stage(args);
}

void cuda_norm_linear(const NormLinearArgs& args, const CudaLaunch& on) {
  FewRowsArgs few = with_norm(args.norm, args.linear);
  if (args.keeps_normed) few.stage.normed_out = args.norm.out;
  launch_few_rows(few, on);
}

void cuda_gated(const GatedArgs& args, const CudaLaunch& on) {
  FewRowsArgs few = with_norm(args.norm, args.gate_up);
  few.gated_out = args.silu.out;
  launch_few_rows(few, on);
}

}  // namespace sluice
