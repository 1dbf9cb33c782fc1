// Rows of activations on their way into a block's shared memory, normalised where asked for.
#pragma once
#include "models/ops/cuda_few_rows.cuh"
#include "models/ops/cuda_norm.cuh"

namespace sluice {

// Rows that a block stages at most: with more, measured on an H200, it is done later than if it reads
// them where they are.
inline constexpr std::uint32_t kStagedRows = 2;

struct StageArgs {
  const void* x = nullptr;  // [rows, k], not yet normalised where there is a norm
  std::uint32_t rows = 0, k = 0;
  const std::byte* norm_weight = nullptr;  // [k] of norm_type, or null
  DType norm_type = DType::bf16;
  float eps = 0;
  void* normed_out = nullptr;  // [rows, k]: the normalised rows, where somebody else reads them
};

// `Rows` says where columns lie in shared memory. A thread works on the same columns throughout,
// eights that are a whole number of threads apart. Made before the rows are there: it reads the first
// of its norm weights then.
template <typename T, typename Rows, int kThreads>
class RowStage {
 public:
  __device__ explicit RowStage(const StageArgs& args)
      : args_(args),
        stride_((args.norm_weight ? kNormThreads : kThreads) * 8),
        end_(!args.norm_weight || threadIdx.x < kNormThreads ? args.k : 0),
        holds_(args.norm_weight && size_of(args.norm_type) == sizeof(T)) {
    if (!holds_) return;
#pragma unroll
    for (std::uint32_t c = 0; c < kHeld; ++c)
      if (column(c) < end_)
        held_[c] = *reinterpret_cast<const Eight<T>*>(args.norm_weight + column(c) * sizeof(T));
  }

  // By the first kThreads of the block, which may read the rows afterwards.
  __device__ void operator()(T* staged) {
    __shared__ float warp_sums[kStagedRows][kNormWarps];
    const std::uint32_t width = Rows::width(args_.k);
    for (std::uint32_t row = 0; row < args_.rows; ++row) {
      const T* const from = static_cast<const T*>(args_.x) + std::size_t{row} * args_.k;
      float squares = 0;
      for (std::uint32_t c = 0; column(c) < end_; c += kAtOnce) {
        Eight<T> values[kAtOnce];
#pragma unroll
        for (std::uint32_t i = 0; i < kAtOnce; ++i)
          if (column(c + i) < end_)
            values[i] = *reinterpret_cast<const Eight<T>*>(from + column(c + i));
#pragma unroll
        for (std::uint32_t i = 0; i < kAtOnce; ++i) {
          if (column(c + i) >= end_) continue;
          add_squares(squares, values[i]);
          *reinterpret_cast<Eight<T>*>(staged + row * width + Rows::place(column(c + i))) =
              args_.norm_weight ? values[i] : Rows::prepared(values[i]);
        }
      }
      for (std::uint32_t i = args_.k + threadIdx.x * 8; i < Rows::columns(args_.k);
           i += kThreads * 8)
        *reinterpret_cast<uint4*>(staged + row * width + Rows::place(i)) = {};
      if (!args_.norm_weight || threadIdx.x >= kNormThreads) continue;
      squares = warp_sum(squares);
      if (threadIdx.x % kWarp == 0) warp_sums[row][threadIdx.x / kWarp] = squares;
    }
    sync_first<kThreads>();
    if (!args_.norm_weight) return;
    for (std::uint32_t row = 0; row < args_.rows; ++row) {
      const float scale = inverse_rms(warp_sums[row], args_.k, args_.eps);
      T* const to = staged + row * width;
#pragma unroll
      for (std::uint32_t c = 0; c < kHeld; ++c)
        if (column(c) < end_) normalise(to, row, column(c), scale, held_[c], holds_);
      for (std::uint32_t c = kHeld; column(c) < end_; ++c)
        normalise(to, row, column(c), scale, {}, false);
    }
    sync_first<kThreads>();
  }

 private:
  static constexpr std::uint32_t kHeld = 2;
  // Eights of a row that a thread asks for before it needs the first: memory is busy with weights, and
  // answers late.
  static constexpr std::uint32_t kAtOnce = 6;

  __device__ std::uint32_t column(std::uint32_t c) const { return threadIdx.x * 8 + c * stride_; }

  __device__ void normalise(T* staged, std::uint32_t row, std::uint32_t column, float scale,
                            const Eight<T>& held, bool holds) {
    float weights[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) weights[e] = to_float(held.v[e]);
    if (!holds) load_eight(args_.norm_weight, args_.norm_type, column, args_.k, weights);
    auto& place = *reinterpret_cast<Eight<T>*>(staged + Rows::place(column));
    Eight<T> values = place;
#pragma unroll
    for (int e = 0; e < 8; ++e) values.v[e] = normalised(values.v[e], scale, weights[e]);
    place = Rows::prepared(values);
    if (args_.normed_out && blockIdx.x == 0)
      *reinterpret_cast<Eight<T>*>(static_cast<T*>(args_.normed_out) + std::size_t{row} * args_.k +
                                   column) = values;
  }

  const StageArgs& args_;
  std::uint32_t stride_, end_;
  bool holds_;
  Eight<T> held_[kHeld];
};

}  // namespace sluice
