#include "models/ops/cuda_kernels.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "core/device/cuda_error.hpp"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_matmul.hpp"

namespace sluice {
namespace {

// Programmatic dependent launch came with this architecture.
constexpr int kOverlapMajor = 9;

class CudaKernels final : public IKernels {
 public:
  explicit CudaKernels(IDevice& device) : device_(device), matmul_(device) {
    int ordinal = 0, major = 0;
    SLUICE_CUDA_CHECK(cudaGetDevice(&ordinal));
    SLUICE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
    overlap_ = major >= kOverlapMajor;
  }

  void embed(const EmbedArgs& args, NativeStream stream) const override {
    cuda_embed(args, on(stream));
  }
  void rms_norm(const RmsNormArgs& args, NativeStream stream) const override {
    cuda_rms_norm(args, on(stream));
  }
  void linear(const LinearArgs& args, NativeStream stream) const override {
    const bool many = args.rows > kFewRows && args.type != DType::f32 &&
                      args.type == args.weight_type && args.k % 8 == 0 && args.n % 8 == 0;
    if (!many) return cuda_linear_few(args, on(stream));
    matmul_(args, static_cast<cudaStream_t>(stream));
    if (args.bias || args.residual) cuda_linear_finish(args, on(stream));
  }
  void rope_store(const RopeStoreArgs& args, NativeStream stream) const override {
    cuda_rope_store(args, on(stream));
  }
  void attention(const AttentionArgs& args, NativeStream stream) const override {
    if (args.consecutive && cuda_has_prefill_attention(args.type, args.kv.head_dim))
      return cuda_prefill_attention(args, on(stream));
    decode_attention(args, on(stream));
  }
  void silu_mul(const SiluMulArgs& args, NativeStream stream) const override {
    cuda_silu_mul(args, on(stream));
  }
  void sample(const SampleArgs& args, NativeStream stream) const override {
    cuda_sample(args, on(stream));
  }
  void decode_rows(const DecodeRowsArgs& args, NativeStream stream) const override {
    cuda_decode_rows(args, on(stream));
  }

 private:
  CudaLaunch on(NativeStream stream) const { return {static_cast<cudaStream_t>(stream), overlap_}; }

  // A few rows at a time, so that the spans' partial results stay small.
  void decode_attention(AttentionArgs args, const CudaLaunch& launch) const {
    const std::uint32_t all = args.rows.count;
    const std::size_t width = std::size_t{args.heads + 2 * args.kv.kv_heads} * args.kv.head_dim;
    const std::size_t bytes = size_of(args.type);
    const std::uint64_t needed =
        4 * cuda_attention_workspace(std::min(all, kFewRows), args.heads, args.kv.head_dim,
                                     args.kv.pages_per_sequence * kPageTokens);
    if (partials_.bytes() < needed) {
      SLUICE_CUDA_CHECK(cudaStreamSynchronize(launch.stream));
      partials_ = Buffer();
      partials_ = Buffer(device_, Buffer::Where::device, needed, "the attention workspace");
    }
    for (std::uint32_t first = 0; first < all; first += kFewRows) {
      AttentionArgs part = args;
      part.rows.count = std::min(kFewRows, all - first);
      part.rows.tokens += first;
      part.rows.sequences += first;
      part.rows.positions += first;
      part.qkv = static_cast<const std::byte*>(args.qkv) + first * width * bytes;
      part.out = static_cast<std::byte*>(args.out) +
                 std::size_t{first} * args.heads * args.kv.head_dim * bytes;
      cuda_decode_attention(part, partials_.as<float>(), launch);
    }
  }

  IDevice& device_;
  bool overlap_ = false;
  mutable CudaMatmul matmul_;
  mutable Buffer partials_;  // grown at the first passes, then constant
};

}  // namespace

std::unique_ptr<IKernels> make_cuda_kernels(IDevice& device) {
  return std::make_unique<CudaKernels>(device);
}

}  // namespace sluice
