// What the CUDA sources offer to the class that implements IKernels.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "models/ops/expert_args.hpp"
#include "models/ops/kernel_args.hpp"

namespace sluice {

// Rows of activations up to which weights are read once, by the matrix-vector kernels.
inline constexpr std::uint32_t kFewRows = 16;

struct CudaLaunch {
  cudaStream_t stream = nullptr;
  bool overlap = false;  // the architecture has programmatic dependent launch
  std::uint32_t processors = 1;
  std::size_t shared_of_processor = 0, shared_of_block = 0;  // bytes of shared memory
};

void cuda_embed(const EmbedArgs& args, const CudaLaunch& launch);
void cuda_rms_norm(const RmsNormArgs& args, const CudaLaunch& launch);
void cuda_rope_store(const RopeStoreArgs& args, const CudaLaunch& launch);
void cuda_silu_mul(const SiluMulArgs& args, const CudaLaunch& launch);
void cuda_decode_rows(const DecodeRowsArgs& args, const CudaLaunch& launch);

// Whether `rows` rows times a matrix whose rows have k weights are the tensor cores' kernels' to
// multiply: of one 16-bit type, and each row a whole number of pieces of 16 bytes.
constexpr bool cuda_on_tensor_cores(DType type, DType weight_type, Encoding encoding,
                                    std::uint32_t rows, std::uint32_t k) {
  const std::uint32_t piece = encoding == Encoding::native ? 8
                              : encoding == Encoding::int8 ? 16
                                                           : 32;
  return type != DType::f32 && type == weight_type && k % piece == 0 && rows <= kFewRows;
}

// y = x W^T for at most kFewRows rows, or for any number of them where cuda_linear_any() does it.
void cuda_linear_few(const LinearArgs& args, const CudaLaunch& launch);
// The same without tensor cores, whatever the types, the encoding and the shape.
void cuda_linear_any(const LinearArgs& args, const CudaLaunch& launch);
// args.residual += args.out, rounded; n is a multiple of 8.
void cuda_add_residual(const LinearArgs& args, const CudaLaunch& launch);
// Whether a norm before this product, with SiLU after it or not, can be done by one kernel.
bool cuda_can_norm_linear(const LinearArgs& args);
void cuda_norm_linear(const NormLinearArgs& args, const CudaLaunch& launch);
void cuda_gated(const GatedArgs& args, const CudaLaunch& launch);

// See expert_args.hpp. Pairs are those of at most kFewRows rows.
void cuda_route(const RouteArgs& args, const CudaLaunch& launch);
void cuda_place_experts(const PlaceExpertsArgs& args, const CudaLaunch& launch);
void cuda_expert_pairs(const ExpertPairsArgs& args, const CudaLaunch& launch);
void cuda_combine(const CombineArgs& args, const CudaLaunch& launch);
void cuda_gather_rows(const GatherRowsArgs& args, const CudaLaunch& launch);
void cuda_add_rows(const AddRowsArgs& args, const CudaLaunch& launch);
void cuda_clear_sums(const ClearSumsArgs& args, const CudaLaunch& launch);
void cuda_add_sums(const AddSumsArgs& args, const CudaLaunch& launch);

// Whether a layer's experts are done by kernels of their own; see RoutedExpertsArgs.
bool cuda_can_route_experts(const RoutedExpertsArgs& args, const CudaLaunch& launch);
void cuda_routed_experts(const RoutedExpertsArgs& args, const CudaLaunch& launch);

// Memory that decode attention works in, by launches one after another.
struct CudaAttentionSpace {
  float* partials = nullptr;
  std::uint32_t* arrived = nullptr;  // zero between launches
};
struct CudaAttentionNeed {
  std::uint64_t partials = 0, arrived = 0;  // elements
};
// For `rows` rows of operations like this one, their lengths up to what the cache holds.
CudaAttentionNeed cuda_attention_need(std::uint32_t rows, const AttentionArgs& args);
// Whether the kernels can do with heads of this size.
bool cuda_has_decode_attention(const AttentionArgs& args);
void cuda_decode_attention(const AttentionArgs& args, const CudaAttentionSpace& space,
                           const CudaLaunch& launch);
// For rows of different sequences.
void cuda_rope_attention(const RopeAttentionArgs& args, const CudaAttentionSpace& space,
                         const CudaLaunch& launch);
// Tiled on tensor cores, for rows that are consecutive positions of one sequence, where the type and
// the size of a head allow it.
bool cuda_has_prefill_attention(DType type, std::uint32_t head_dim);
void cuda_prefill_attention(const AttentionArgs& args, const CudaLaunch& launch);

// The likeliest token of a part of a row of logits.
struct CudaBest {
  float logit;
  std::int32_t id;          // -1: all are suppressed
  std::uint32_t is_finite;  // all logits of the part are
};
std::uint32_t cuda_sample_parts(std::uint32_t vocab);
// Memory that sampling works in, by launches one after another.
struct CudaSampleSpace {
  CudaBest* best = nullptr;          // [rows * cuda_sample_parts(vocab)]
  std::uint32_t* arrived = nullptr;  // [rows], zero between launches
};
void cuda_sample(const SampleArgs& args, const CudaSampleSpace& space, const CudaLaunch& launch);

}  // namespace sluice
