// What the CUDA sources offer to the class that implements IKernels. `overlap` says whether the
// architecture has programmatic dependent launch.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "models/ops/kernel_args.hpp"

namespace sluice {

// Rows of activations up to which weights are read once, by the matrix-vector kernels.
inline constexpr std::uint32_t kFewRows = 16;
// Positions that one block of decode attention covers.
inline constexpr std::uint32_t kAttentionSpan = 256;

struct CudaLaunch {
  cudaStream_t stream = nullptr;
  bool overlap = false;
};

void cuda_embed(const EmbedArgs& args, const CudaLaunch& launch);
void cuda_rms_norm(const RmsNormArgs& args, const CudaLaunch& launch);
void cuda_rope_store(const RopeStoreArgs& args, const CudaLaunch& launch);
void cuda_silu_mul(const SiluMulArgs& args, const CudaLaunch& launch);
void cuda_decode_rows(const DecodeRowsArgs& args, const CudaLaunch& launch);

// y = x W^T for at most kFewRows rows, or for any number of them in f32.
void cuda_linear_few(const LinearArgs& args, const CudaLaunch& launch);
// The rest of a linear after its product is in `args.out`: bias, rounding, residual.
void cuda_linear_finish(const LinearArgs& args, const CudaLaunch& launch);

// f32 values of workspace that decode attention needs for `rows` rows of up to `positions`.
std::uint64_t cuda_attention_workspace(std::uint32_t rows, std::uint32_t heads,
                                       std::uint32_t head_dim, std::uint32_t positions);
void cuda_decode_attention(const AttentionArgs& args, float* workspace, const CudaLaunch& launch);
// Tiled on tensor cores, for rows that are consecutive positions of one sequence, where the type and
// the size of a head allow it.
bool cuda_has_prefill_attention(DType type, std::uint32_t head_dim);
void cuda_prefill_attention(const AttentionArgs& args, const CudaLaunch& launch);

void cuda_sample(const SampleArgs& args, const CudaLaunch& launch);

}  // namespace sluice
