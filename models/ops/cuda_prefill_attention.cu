#include <type_traits>

#include "models/ops/cuda_common.cuh"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_mma.cuh"

namespace sluice {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kQueries = kWarps * 16;  // rows of a block
constexpr int kKeys = kPageTokens;     // a tile is a page of the cache
static_assert(kKeys == 64);

// A page's keys or values of one head in shared memory: [kKeys][kDim], its 16-byte pieces swapped
// within a row by the row's number so that reading eight rows at once meets eight different banks.
template <typename T, int kDim>
struct Tile {
  alignas(128) T data[kKeys * kDim];

  __device__ T* piece(int row, int index) { return data + row * kDim + ((index ^ (row % 8)) * 8); }
  // Rows from `rows` on are zeros: nothing has written them yet, and a weight of zero times a NaN
  // that happens to lie there is a NaN.
  __device__ void fill(const T* page, int rows) {
    constexpr int kPieces = kDim / 8;
    for (int i = threadIdx.x; i < kKeys * kPieces; i += kThreads)
      copy_async(piece(i / kPieces, i % kPieces), page + i * 8, i / kPieces < rows);
  }
};

template <typename T, int kDim>
struct Stage {
  Tile<T, kDim> keys, values;
};

constexpr float kLog2E = 1.44269504f;

__device__ inline float two_to(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The online softmax of Dao, "FlashAttention-2", 2023: a running maximum and sum per row, what was
// summed before rescaled when the maximum grows. Tiles ascend from position 0, so a row's result
// depends on its position alone.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) prefill_kernel(const AttentionArgs args) {
  wait_for_previous();
  extern __shared__ __align__(128) unsigned char shared[];
  auto* stages = reinterpret_cast<Stage<T, kDim>*>(shared);
  constexpr int kDimSteps = kDim / 16, kDimTiles = kDim / 8, kKeyTiles = kKeys / 8;

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int g = lane / 4, q = lane % 4;
  // Late rows see most keys: begin with them.
  const std::uint32_t block_row = (gridDim.x - 1 - blockIdx.x) * kQueries;
  const std::uint32_t head = blockIdx.y, kv_heads = args.kv.kv_heads;
  const std::uint32_t kv_head = head / (args.heads / kv_heads);
  const int first_position = args.rows.positions[0];
  const std::size_t sequence = args.rows.sequences[0];
  const std::int32_t* pages = args.kv.page_table + sequence * args.kv.pages_per_sequence;
  const std::uint32_t rows_here = min(std::uint32_t{kQueries}, args.rows.count - block_row);
  const int block_last = first_position + int(block_row + rows_here) - 1;
  const int tiles = block_last / kKeys + 1;

  const auto start = [&](int tile) {
    Stage<T, kDim>& stage = stages[tile % 2];
    const T* page =
        reinterpret_cast<const T*>(args.kv.pages + std::size_t(pages[tile]) * args.kv.page_bytes);
    const int rows = block_last + 1 - tile * kKeys;
    stage.keys.fill(page + std::size_t{kv_head} * kKeys * kDim, rows);
    stage.values.fill(page + (std::size_t{kv_heads} + kv_head) * kKeys * kDim, rows);
    close_copy_group();
  };
  start(0);

  const std::size_t width = std::size_t{args.heads + 2 * kv_heads} * kDim;
  const std::uint32_t upper_row = block_row + warp * 16 + g, lower_row = upper_row + 8;
  const bool has_upper = upper_row < args.rows.count, has_lower = lower_row < args.rows.count;
  const T* upper =
      static_cast<const T*>(args.qkv) + (has_upper ? upper_row : 0) * width + head * kDim;
  const T* lower =
      static_cast<const T*>(args.qkv) + (has_lower ? lower_row : 0) * width + head * kDim;
  uint32_t query[kDimSteps][4];
#pragma unroll
  for (int s = 0; s < kDimSteps; ++s) {
    query[s][0] = *reinterpret_cast<const uint32_t*>(upper + s * 16 + q * 2);
    query[s][1] = *reinterpret_cast<const uint32_t*>(lower + s * 16 + q * 2);
    query[s][2] = *reinterpret_cast<const uint32_t*>(upper + s * 16 + q * 2 + 8);
    query[s][3] = *reinterpret_cast<const uint32_t*>(lower + s * 16 + q * 2 + 8);
  }
  const int upper_position = first_position + int(upper_row);
  const int lower_position = upper_position + 8;

  const int first_of_warp = first_position + int(block_row) + warp * 16;
  // Scores stay as the products leave them; the exponential's base is 2.
  const float scale = args.scale * kLog2E;

  float value[kDimTiles][4] = {};
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      start(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    Stage<T, kDim>& stage = stages[tile % 2];

    float score[kKeyTiles][4] = {};
#pragma unroll
    for (int s = 0; s < kDimSteps; ++s) {
#pragma unroll
      for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        // Matrices: keys of tile 2 * pair and of the next, each with its two halves of 16 values.
        uint32_t m[4];
        const int key = (pair * 2 + lane / 16) * 8 + lane % 8;
        load_matrices(m, stage.keys.piece(key, s * 2 + lane / 8 % 2));
        mma(score[pair * 2], query[s], {m[0], m[1]}, T{});
        mma(score[pair * 2 + 1], query[s], {m[2], m[3]}, T{});
      }
    }

    const int tile_begin = tile * kKeys;
    if (tile_begin + kKeys - 1 > first_of_warp) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = tile_begin + t * 8 + q * 2 + i % 2;
          if (key > (i < 2 ? upper_position : lower_position)) score[t][i] = -INFINITY;
        }
    }
    float highest[2] = {most[0], most[1]};
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) highest[i / 2] = fmaxf(highest[i / 2], score[t][i]);
    float shrink[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      highest[r] = fmaxf(highest[r], __shfl_xor_sync(kAllLanes, highest[r], 1));
      highest[r] = fmaxf(highest[r], __shfl_xor_sync(kAllLanes, highest[r], 2));
      shrink[r] = two_to((most[r] - highest[r]) * scale);
      most[r] = highest[r];
      sum[r] *= shrink[r];
    }
#pragma unroll
    for (int t = 0; t < kDimTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) value[t][i] *= shrink[i / 2];

    uint32_t weight[kKeys / 16][4];
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
      float e[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        e[i] = two_to(fmaf(score[t][i], scale, -most[i / 2] * scale));
        sum[i / 2] += e[i];
      }
      weight[t / 2][t % 2 * 2] = pack(e[0], e[1], T{});
      weight[t / 2][t % 2 * 2 + 1] = pack(e[2], e[3], T{});
    }
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
#pragma unroll
      for (int pair = 0; pair < kDimTiles / 2; ++pair) {
        uint32_t m[4];
        const int key = s * 16 + lane / 8 % 2 * 8 + lane % 8;
        load_matrices_transposed(m, stage.values.piece(key, pair * 2 + lane / 16));
        mma(value[pair * 2], weight[s], {m[0], m[1]}, T{});
        mma(value[pair * 2 + 1], weight[s], {m[2], m[3]}, T{});
      }
    }
    __syncthreads();
  }
  let_next_begin();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
    sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
  }
  T* out = static_cast<T*>(args.out);
  const std::size_t out_width = std::size_t{args.heads} * kDim;
#pragma unroll
  for (int t = 0; t < kDimTiles; ++t) {
    const std::size_t column = head * kDim + t * 8 + q * 2;
    if (has_upper)
      *reinterpret_cast<uint32_t*>(out + upper_row * out_width + column) =
          pack(value[t][0] / sum[0], value[t][1] / sum[0], T{});
    if (has_lower)
      *reinterpret_cast<uint32_t*>(out + lower_row * out_width + column) =
          pack(value[t][2] / sum[1], value[t][3] / sum[1], T{});
  }
}

template <typename T, int kDim>
void launch_prefill(const AttentionArgs& args, const CudaLaunch& on) {
  constexpr std::size_t kShared = 2 * sizeof(Stage<T, kDim>);
  const auto kernel = prefill_kernel<T, kDim>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  SLUICE_CUDA_CHECK(allowed);
  const dim3 grid((args.rows.count + kQueries - 1) / kQueries, args.heads);
  launch(kernel, grid, kThreads, kShared, on.stream, on.overlap, args);
}

}  // namespace

bool cuda_has_prefill_attention(DType type, std::uint32_t head_dim) {
  return type != DType::f32 && (head_dim == 64 || head_dim == 128);
}

void cuda_prefill_attention(const AttentionArgs& args, const CudaLaunch& on) {
  with_type(args.type, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, float>)
      args.kv.head_dim == 64 ? launch_prefill<T, 64>(args, on) : launch_prefill<T, 128>(args, on);
  });
}

}  // namespace sluice
