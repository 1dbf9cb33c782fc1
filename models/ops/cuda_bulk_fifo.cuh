// The FIFO of cuda_weight_fifo.cuh for architectures with bulk copies (sm_90 and later): a warp of its own
// asks for rows of codes, so that those who multiply neither wait while a full FIFO is asked for nor
// spend instructions on it. Only for whole steps.
#pragma once
#include "models/ops/cuda_weight_fifo.cuh"

namespace sluice {

// Rows of a step lie far enough apart that lanes of two rows, or of eight rows' scales, meet in no bank.
template <typename Format, typename Step>
struct BulkStep {
  static constexpr int kRowBytes = Step::kPieceBytes / kGroupRows;
  static constexpr int kRowStride = kRowBytes + 64;
  static constexpr int kCodeBytes = kGroupRows * kRowStride;
  static constexpr int kScaleBytes =
      Format::kHasGroups ? Step::kWeights / int(kGroupWeights) * int(sizeof(GroupScale)) : 0;
  static constexpr int kScaleStride = kScaleBytes + 16;
  static constexpr int kBytes = kCodeBytes + (Format::kHasGroups ? kGroupRows * kScaleStride : 0);
  static_assert(kRowStride % 128 == 64 && kScaleStride % 32 == 16);

  // Whether all that is copied is in whole steps, and pieces of 16 bytes.
  static bool can(std::uint32_t k) {
    return k % Step::kWeights == 0 &&
           (!Format::kHasGroups || scale_row_bytes(Encoding::int4, k) % 16 == 0);
  }
};

struct Mbarrier {
  __device__ static void init(uint32_t at, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
  }
  __device__ static void arrive(uint32_t at) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(at) : "memory");
  }
  // When this thread's copies have come.
  __device__ static void arrive_with_copies(uint32_t at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
  }
  __device__ static void wait(uint32_t at, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{.reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; @!done bra "
        "again;}" ::"r"(at),
        "r"(parity)
        : "memory");
#endif
  }
  __device__ static void arrive_expecting(uint32_t at, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}" ::"r"(at),
        "r"(bytes)
        : "memory");
#endif
  }
};

// Where in the ring a thread is.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ void move_on(int depth) {
    if (++slot != depth) return;
    slot = 0;
    parity ^= 1;
  }
};

// row_of(item, i): row i of the 16 of an item.
template <typename Format, typename Step, typename RowOf>
class BulkFifo {
 public:
  using Bulk = BulkStep<Format, Step>;

  // By all threads of the block, of which there is a warp more than Step::kThreads: it asks.
  __device__ BulkFifo(unsigned char* shared, int depth, const StoredMatrix& m, std::uint32_t items,
                      const RowOf& row_of)
      : at_(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
        depth_(depth),
        matrix_(m),
        items_(items),
        row_of_(row_of) {
    __shared__ unsigned long long barriers[2 * kMostSteps];
    full_ = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    empty_ = full_ + kMostSteps * 8;
    if (threadIdx.x == 0) {
      for (int i = 0; i < depth; ++i) {
        Mbarrier::init(full_ + i * 8, Format::kHasGroups ? 1 + kWarp : 1);
        Mbarrier::init(empty_ + i * 8, Step::kThreads);
      }
#if __CUDA_ARCH__ >= 900
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
  }

  // By the last warp: asks for all steps of the block's items.
  __device__ void ask() const {
    const int lane = threadIdx.x % kWarp, steps = Step::count(matrix_.k);
    RingPlace place{0, 1}, coming;
    int under_way = 0;
    for (std::uint32_t item = blockIdx.x; item < items_; item += gridDim.x) {
      const std::byte* row = Format::codes(matrix_, row_of_(item, lane % kGroupRows));
      // Scales are too little to be worth bulk copies: four lanes copy those of a row.
      const std::byte* scales[2] = {};
      if constexpr (Format::kHasGroups)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          scales[i] = Format::groups(matrix_, row_of_(item, lane / 4 + i * 8)) + lane % 4 * 16;
      for (int step = 0; step < steps; ++step) {
        const uint32_t full = full_ + place.slot * 8, to = at_ + place.slot * Bulk::kBytes;
        if (under_way == kUnderWay) {
          Mbarrier::wait(full_ + coming.slot * 8, coming.parity);
          coming.move_on(depth_);
        } else {
          ++under_way;
        }
        Mbarrier::wait(empty_ + place.slot * 8, place.parity);
        fence_bulk_copies();
        if (lane == 0) Mbarrier::arrive_expecting(full, kGroupRows * Bulk::kRowBytes);
        __syncwarp();
        if (lane < kGroupRows) copy_row(to + lane * Bulk::kRowStride, row, full);
        if constexpr (Format::kHasGroups) {
          const uint32_t to_scales =
              to + Bulk::kCodeBytes + lane / 4 * Bulk::kScaleStride + lane % 4 * 16;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            copy_scales(to_scales + i * 8 * Bulk::kScaleStride, scales[i]);
            scales[i] += Bulk::kScaleBytes;
          }
          Mbarrier::arrive_with_copies(full);
        }
        row += Bulk::kRowBytes;
        place.move_on(depth_);
      }
    }
  }

  // By the others: the next step, whose room goes to the first one not yet asked for.
  __device__ void take(StepPieces<Format, Step>& step) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const uint32_t slot = at_ + place_.slot * Bulk::kBytes;
    const uint32_t mine =
        slot + lane / 4 * Bulk::kRowStride + warp * Step::kPieces * 64 + lane % 4 * 16;
    Mbarrier::wait(full_ + place_.slot * 8, place_.parity);
#pragma unroll
    for (int p = 0; p < Step::kPieces; ++p) {
      step.upper[p].bits = shared_words(mine + p * 64);
      step.lower[p].bits = shared_words(mine + 8 * Bulk::kRowStride + p * 64);
    }
    if constexpr (Format::kHasGroups) {
      const uint32_t scales =
          slot + Bulk::kCodeBytes + lane / 4 * Bulk::kScaleStride + warp * Step::kPieces * 4;
      const uint2 upper = shared_pair(scales), lower = shared_pair(scales + 8 * Bulk::kScaleStride);
      step.set_groups({upper.x, lower.x, upper.y, lower.y});
    }
    // Each lane for itself. One could for its warp, but racecheck would not follow it, and it takes no less
    // time.
    Mbarrier::arrive(empty_ + place_.slot * 8);
    place_.move_on(depth_);
  }

 private:
  // Steps of a block that memory is asked for at a time: what is behind more than keep it busy comes later
  // than it could, and activations are.
  static constexpr int kUnderWay = 2;
  static_assert(kUnderWay <= kLeastSteps);

  __device__ static void copy_row(uint32_t to, const std::byte* from, uint32_t full) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(Bulk::kRowBytes), "r"(full)
        : "memory");
#endif
  }
  // What was read here before comes before what bulk copies write, which are of another proxy.
  __device__ static void fence_bulk_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }
  __device__ static void copy_scales(uint32_t to, const std::byte* from) {
    static_assert(!Format::kHasGroups || Bulk::kScaleBytes == 4 * 16);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  }
  __device__ static uint2 shared_pair(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(address)
                 : "memory");
    return v;
  }

  uint32_t at_, full_, empty_;
  int depth_;
  const StoredMatrix& matrix_;
  std::uint32_t items_;
  const RowOf& row_of_;
  RingPlace place_;
};

}  // namespace sluice
