// Weights under way from global to shared memory, a FIFO of steps. A lane copies what it will multiply
// itself, so that no barrier of the block stands between a copy and its use.
//
// A multiprocessor's whole shared memory holds more than its registers can: what a kernel asks for at its
// start keeps memory busy until the activations are there.
#pragma once
#include <algorithm>

#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_mma.cuh"
#include "models/ops/cuda_weight_formats.cuh"

namespace sluice {

inline constexpr int kGroupRows = 16;  // of the weight matrix: the m of the mma instruction
inline constexpr int kMostSteps = 6, kLeastSteps = 2;  // of a FIFO

// Shared memory of a block at most; every architecture in use has as much.
inline constexpr std::size_t kMostShared = 96 << 10;

// Steps of `step_bytes` for a block that needs `behind` bytes more: as many as let a multiprocessor have
// `blocks` of its kind, or as many as one can have.
inline int fifo_depth(const CudaLaunch& on, std::size_t behind, std::size_t step_bytes,
                      int blocks) {
  constexpr std::size_t kNotCounted = 2 << 10;  // what CUDA takes, and variables
  const auto fitting = [&](std::size_t bytes) {
    const std::size_t used = behind + kNotCounted;
    return bytes < used ? 0 : static_cast<int>((bytes - used) / step_bytes);
  };
  const int beside_others = fitting(on.shared_of_processor / blocks);
  const int depth = beside_others < kLeastSteps ? fitting(on.shared_of_block) : beside_others;
  return std::clamp(depth, kLeastSteps, kMostSteps);
}

// Kernels whose blocks should share a multiprocessor have to want it divided up alike.
template <typename... Params>
cudaError_t allow_shared(void (*kernel)(Params...)) {
  int ordinal = 0, most = 0;
  if (const cudaError_t e = cudaGetDevice(&ordinal)) return e;
  if (const cudaError_t e =
          cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal))
    return e;
  cudaFuncAttributes attributes{};
  if (const cudaError_t e = cudaFuncGetAttributes(&attributes, kernel)) return e;
  if (const cudaError_t e =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               most - static_cast<int>(attributes.sharedSizeBytes)))
    return e;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// What a block takes of its weights at a time: kWarps share the columns of 16 rows, and each lane has
// kPieces in each of two of them.
template <typename Format, int kWarpsOfBlock>
struct WeightStep {
  static constexpr int kWarps = kWarpsOfBlock, kThreads = kWarps * kWarp;
  static constexpr int kPieces = 2;
  static constexpr int kSpan = 4 * Format::kPieceWeights;    // of a row, four lanes' pieces
  static constexpr int kWeights = kWarps * kPieces * kSpan;  // of a row
  static constexpr int kPieceBytes = kThreads * 2 * kPieces * 16;
  static constexpr int kBytes = kPieceBytes + (Format::kHasGroups ? kThreads * 4 : 0);

  static constexpr std::uint32_t count(std::uint32_t k) { return divided_up(k, kWeights); }
  // A warp's first weight of a row.
  __device__ static int first_of_warp() { return threadIdx.x / kWarp * kPieces * kSpan; }
};

// Two rows where a lane's first piece begins, and the first group's scale that it copies: of the four
// that its four lanes need, those of the upper row's and the lower row's first pieces, then of the
// second ones.
struct LaneRows {
  const std::byte *upper = nullptr, *lower = nullptr, *group = nullptr;

  __device__ void move_on(std::ptrdiff_t codes, std::ptrdiff_t groups) {
    upper += codes;
    lower += codes;
    group += groups;
  }
};

template <typename Step, typename Format>
__device__ inline LaneRows lane_rows(const StoredMatrix& m, std::uint32_t upper,
                                     std::uint32_t lower) {
  const int q = threadIdx.x % 4;
  const int first = Format::bytes_of(Step::first_of_warp() + q * Format::kPieceWeights);
  LaneRows rows{Format::codes(m, upper) + first, Format::codes(m, lower) + first};
  if constexpr (Format::kHasGroups)
    rows.group = Format::groups(m, q % 2 == 0 ? upper : lower) +
                 (Step::first_of_warp() / int(kGroupWeights) + q / 2) * sizeof(uint32_t);
  return rows;
}

// A step of a lane.
template <typename Format, typename Step>
struct StepPieces {
  typename Format::Piece upper[Step::kPieces], lower[Step::kPieces];

  __device__ void set_groups(const uint4& of) {
    static_assert(Step::kPieces == 2);
    upper[0].group = of.x;
    lower[0].group = of.y;
    upper[1].group = of.z;
    lower[1].group = of.w;
  }
};

__device__ inline uint4 shared_words(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
// Neighbours in a row come with it, and are used soon: it passes through the first-level cache.
__device__ inline void copy_scale(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(present ? 4 : 0)
               : "memory");
}
__device__ inline void wait_for_all_but(int open) {
  static_assert(kMostSteps == 6 && kLeastSteps == 2);
  if (open >= 5)
    wait_for_copies<5>();
  else if (open == 4)
    wait_for_copies<4>();
  else if (open == 3)
    wait_for_copies<3>();
  else if (open == 2)
    wait_for_copies<2>();
  else
    wait_for_copies<1>();
}

// A block has items blockIdx.x, blockIdx.x + gridDim.x, ... of `items`, groups of 16 rows; each of whole
// steps or, without kWholeSteps, with zeros in place of what lies behind the end of a row.
// rows.of(item) are the LaneRows of one, rows.next(lane_rows, item) those of an item when the lane has
// gone through the one before.
template <typename Format, typename Step, bool kWholeSteps, typename Rows>
class WeightFifo {
 public:
  // `shared`: depth * Step::kBytes, aligned to 16 bytes.
  __device__ WeightFifo(unsigned char* shared, int depth, std::uint32_t k, std::uint32_t items,
                        const Rows& rows)
      : rows_(rows),
        begin_(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
        at_(begin_),
        end_(begin_ + depth * Step::kBytes),
        open_(depth - 1),
        k_(static_cast<int>(k)),
        item_(blockIdx.x),
        items_(items) {
    if (item_ < items_) lane_rows_ = rows_.of(item_);
#pragma unroll 1
    for (; at_ != end_; at_ += Step::kBytes) request();
    at_ = begin_;
  }

  // The next step, whose room goes to the first one not yet asked for.
  __device__ void take(StepPieces<Format, Step>& step) {
    wait_for_all_but(open_);
    const uint32_t mine = at_ + threadIdx.x * 16;
#pragma unroll
    for (int p = 0; p < Step::kPieces; ++p) {
      step.upper[p].bits = shared_words(mine + 2 * p * Step::kThreads * 16);
      step.lower[p].bits = shared_words(mine + (2 * p + 1) * Step::kThreads * 16);
    }
    if constexpr (Format::kHasGroups) {
      __syncwarp();
      step.set_groups(shared_words(at_ + Step::kPieceBytes + threadIdx.x / 4 * 16));
      __syncwarp();
    }
    request();
    at_ = at_ + Step::kBytes == end_ ? begin_ : at_ + Step::kBytes;
  }

 private:
  __device__ void request() {
    if (item_ < items_) {
      const int q = threadIdx.x % 4;
      const uint32_t mine = at_ + threadIdx.x * 16;
#pragma unroll
      for (int p = 0; p < Step::kPieces; ++p) {
        const int by = Format::bytes_of(p * Step::kSpan);
        const bool present =
            kWholeSteps ||
            weight_ + Step::first_of_warp() + p * Step::kSpan + q * Format::kPieceWeights < k_;
        copy(mine + 2 * p * Step::kThreads * 16, lane_rows_.upper + by, present);
        copy(mine + (2 * p + 1) * Step::kThreads * 16, lane_rows_.lower + by, present);
      }
      if constexpr (Format::kHasGroups)
        copy_scale(at_ + Step::kPieceBytes + threadIdx.x * 4, lane_rows_.group,
                   kWholeSteps || weight_ + Step::first_of_warp() + q / 2 * Step::kSpan < k_);
      weight_ += Step::kWeights;
      lane_rows_.move_on(Format::bytes_of(Step::kWeights),
                         Step::kWeights / int(kGroupWeights) * sizeof(uint32_t));
      if (weight_ >= k_) {
        weight_ = 0;
        item_ += gridDim.x;
        if (item_ < items_) rows_.next(lane_rows_, item_);
      }
    }
    close_copy_group();
  }

  __device__ static void copy(uint32_t to, const void* from, bool present) {
    if constexpr (kWholeSteps)
      asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from)
                   : "memory");
    else
      asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                   "r"(present ? 16 : 0)
                   : "memory");
  }
  const Rows& rows_;
  uint32_t begin_, at_, end_;
  int open_, k_, weight_ = 0;  // the next step's first weight of a row
  std::uint32_t item_, items_;
  LaneRows lane_rows_;
};

}  // namespace sluice
