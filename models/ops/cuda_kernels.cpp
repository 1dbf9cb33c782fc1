#include "models/ops/cuda_kernels.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "core/device/cuda_error.hpp"
#include "core/weights/cuda_dequantise.hpp"
#include "core/weights/encoding.hpp"
#include "models/ops/cuda_first_run.hpp"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_matmul.hpp"

namespace sluice {
namespace {

// Programmatic dependent launch came with this architecture.
constexpr int kOverlapMajor = 9;

// Of dequantised weights at a time, for products of many rows, and what a slice's rows are a multiple of.
constexpr std::uint64_t kDequantisedBytes = 32ull << 20;
constexpr std::uint32_t kSliceRows = 64;

int attribute(cudaDeviceAttr which) {
  int ordinal = 0, value = 0;
  SLUICE_CUDA_CHECK(cudaGetDevice(&ordinal));
  SLUICE_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, ordinal));
  return value;
}

// Memory that starts as zeros and only grows. What used it before is waited for then, so that it
// should be as large as it will ever be before a sequence of operations is kept.
class Space {
 public:
  Space(IDevice& device, std::string_view what) : device_(device), what_(what) {}

  template <typename T>
  T* of(std::uint64_t count, cudaStream_t stream) {
    if (buffer_.bytes() < count * sizeof(T)) {
      SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream));
      buffer_ = Buffer();
      buffer_ = Buffer(device_, Buffer::Where::device, count * sizeof(T), what_);
      SLUICE_CUDA_CHECK(cudaMemsetAsync(buffer_.data(), 0, buffer_.bytes(), stream));
    }
    return buffer_.as<T>();
  }

 private:
  IDevice& device_;
  std::string_view what_;
  Buffer buffer_;
};

class TemporaryStream {
 public:
  TemporaryStream() {
    SLUICE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~TemporaryStream() { cudaStreamDestroy(stream_); }
  TemporaryStream(const TemporaryStream&) = delete;
  TemporaryStream& operator=(const TemporaryStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaKernels final : public IKernels {
 public:
  explicit CudaKernels(IDevice& device)
      : device_(device),
        overlap_(attribute(cudaDevAttrComputeCapabilityMajor) >= kOverlapMajor),
        processors_(static_cast<std::uint32_t>(attribute(cudaDevAttrMultiProcessorCount))),
        shared_of_processor_(
            static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor))),
        shared_of_block_(
            static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))),
        matmul_(device),
        partials_(device, "the attention workspace"),
        attention_arrived_(device, "the attention workspace"),
        best_(device, "the sampling workspace"),
        sample_arrived_(device, "the sampling workspace"),
        dequantised_(device, "the workspace for dequantised weights") {}

  void embed(const EmbedArgs& args, NativeStream stream) const override {
    cuda_embed(args, on(stream));
  }
  void rms_norm(const RmsNormArgs& args, NativeStream stream) const override {
    cuda_rms_norm(args, on(stream));
  }
  void linear(const LinearArgs& args, NativeStream stream) const override {
    if (!is_long(args)) return cuda_linear_few(args, on(stream));
    if (args.encoding == Encoding::native)
      matmul_(args, args.n, on(stream).stream);
    else
      multiply_dequantised(args, on(stream).stream);
    if (args.residual) cuda_add_residual(args, on(stream));
  }
  void rope_store(const RopeStoreArgs& args, NativeStream stream) const override {
    if (args.kv.head_dim % 4 != 0 || args.kv.head_dim > 256)
      throw Error(
          "the CUDA kernels rotate heads of up to 256 values, a multiple of 4; these have {}",
          args.kv.head_dim);
    cuda_rope_store(args, on(stream));
  }
  void attention(const AttentionArgs& args, NativeStream stream) const override {
    if (args.consecutive && cuda_has_prefill_attention(args.type, args.kv.head_dim))
      return cuda_prefill_attention(args, on(stream));
    for_few_rows(args, [&](const AttentionArgs& few) {
      cuda_decode_attention(few, attention_space(few, on(stream).stream), on(stream));
    });
  }
  void silu_mul(const SiluMulArgs& args, NativeStream stream) const override {
    cuda_silu_mul(args, on(stream));
  }
  void sample(const SampleArgs& args, NativeStream stream) const override {
    cuda_sample(args, sample_space(args.rows, args.vocab, on(stream).stream), on(stream));
  }
  void decode_rows(const DecodeRowsArgs& args, NativeStream stream) const override {
    cuda_decode_rows(args, on(stream));
  }

  void route(const RouteArgs& args, NativeStream stream) const override {
    cuda_route(args, on(stream));
  }
  void place_experts(const PlaceExpertsArgs& args, NativeStream stream) const override {
    cuda_place_experts(args, on(stream));
  }
  void expert_pairs(const ExpertPairsArgs& args, NativeStream stream) const override {
    for_few_pairs(args, [&](const ExpertPairsArgs& few) { cuda_expert_pairs(few, on(stream)); });
  }
  void combine(const CombineArgs& args, NativeStream stream) const override {
    cuda_combine(args, on(stream));
  }
  void gather_rows(const GatherRowsArgs& args, NativeStream stream) const override {
    cuda_gather_rows(args, on(stream));
  }
  void add_rows(const AddRowsArgs& args, NativeStream stream) const override {
    cuda_add_rows(args, on(stream));
  }
  void clear_sums(const ClearSumsArgs& args, NativeStream stream) const override {
    cuda_clear_sums(args, on(stream));
  }
  void add_sums(const AddSumsArgs& args, NativeStream stream) const override {
    cuda_add_sums(args, on(stream));
  }

  void norm_linear(const NormLinearArgs& args, NativeStream stream) const override {
    if (!cuda_can_norm_linear(args.linear)) return IKernels::norm_linear(args, stream);
    cuda_norm_linear(args, on(stream));
  }
  void gated(const GatedArgs& args, NativeStream stream) const override {
    if (!cuda_can_norm_linear(args.gate_up)) return IKernels::gated(args, stream);
    cuda_gated(args, on(stream));
  }
  void rope_attention(const RopeAttentionArgs& args, NativeStream stream) const override {
    if (args.attention.consecutive || args.attention.rows.count > kFewRows)
      return IKernels::rope_attention(args, stream);
    cuda_rope_attention(args, attention_space(args.attention, on(stream).stream), on(stream));
  }
  void routed_experts(const RoutedExpertsArgs& args, NativeStream stream) const override {
    if (!cuda_can_route_experts(args, on(stream))) return IKernels::routed_experts(args, stream);
    cuda_routed_experts(args, on(stream));
  }

  void prepare(const KernelShapes& shapes) override {
    const TemporaryStream stream;
    KvLayer kv;
    kv.kv_heads = shapes.kv_heads;
    kv.head_dim = shapes.head_dim;
    kv.pages_per_sequence = (shapes.context + kPageTokens - 1) / kPageTokens;
    const bool tiled = cuda_has_prefill_attention(shapes.type, shapes.head_dim);
    AttentionArgs attention;
    attention.type = shapes.type;
    attention.heads = shapes.heads;
    attention.kv = kv;
    attention.rows.count = std::min(kFewRows, tiled ? shapes.sequences : shapes.rows);
    attention_space(attention, stream);
    sample_space(shapes.sequences, shapes.vocab, stream);
    if (shapes.quantised && shapes.type != DType::f32)
      dequantised_.of<std::byte>(kDequantisedBytes, stream);
    if (shapes.type != DType::f32 && shapes.rows > kFewRows)
      for (const auto& [n, k] : shapes.matrices)
        if (n % 8 == 0 && k % 8 == 0) matmul_.prepare(shapes.type, n, k, shapes.rows, stream);
    cuda_first_run(device_, *this, shapes, stream);
  }

 private:
  CudaLaunch on(NativeStream stream) const {
    return {static_cast<cudaStream_t>(stream), overlap_, processors_, shared_of_processor_,
            shared_of_block_};
  }

  static bool is_long(const LinearArgs& args) {
    return args.rows > kFewRows && args.type != DType::f32 && args.type == args.weight_type &&
           args.k % 8 == 0 && args.n % 8 == 0 && (!args.bias || args.bias_type == args.type);
  }

  // Rows of weights at a time, so that the workspace is the same for every matrix. A slice's rows are
  // a function of the matrix, as its algorithm is.
  void multiply_dequantised(const LinearArgs& args, cudaStream_t stream) const {
    auto* const slice = dequantised_.of<std::byte>(kDequantisedBytes, stream);
    const std::uint64_t row_bytes = std::uint64_t{args.k} * size_of(args.type);
    const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(
        kSliceRows, kDequantisedBytes / row_bytes / kSliceRows * kSliceRows));
    if (most * row_bytes > kDequantisedBytes)
      throw Error("{} rows of {} weights do not fit into the workspace of {} bytes", most, args.k,
                  kDequantisedBytes);
    for (std::uint32_t row = 0; row < args.n; row += most) {
      LinearArgs part = args;
      part.n = std::min(most, args.n - row);
      DequantiseArgs weights;
      weights.count = 1;
      weights.parts[0] = {.encoding = args.encoding,
                          .type = args.type,
                          .from = args.weight + row * code_row_bytes(args.encoding, args.k),
                          .scales = args.scales + row * scale_row_bytes(args.encoding, args.k),
                          .to = slice,
                          .rows = part.n,
                          .k = args.k};
      cuda_dequantise(weights, stream);
      part.encoding = Encoding::native;
      part.weight = slice;
      part.out = static_cast<std::byte*>(args.out) + row * size_of(args.type);
      if (args.bias) part.bias = args.bias + row * size_of(args.bias_type);
      matmul_(part, args.n, stream);
    }
  }

  CudaAttentionSpace attention_space(const AttentionArgs& args, cudaStream_t stream) const {
    if (!cuda_has_decode_attention(args))
      throw Error("the CUDA kernels have no attention for heads of {} values in {}",
                  args.kv.head_dim, name_of(args.type));
    const CudaAttentionNeed need = cuda_attention_need(args.rows.count, args);
    return {partials_.of<float>(need.partials, stream),
            attention_arrived_.of<std::uint32_t>(need.arrived, stream)};
  }
  CudaSampleSpace sample_space(std::uint32_t rows, std::uint32_t vocab, cudaStream_t stream) const {
    return {best_.of<CudaBest>(std::uint64_t{rows} * cuda_sample_parts(vocab), stream),
            sample_arrived_.of<std::uint32_t>(rows, stream)};
  }

  // A few rows at a time, so that the spans' partial results stay small.
  template <typename F>
  static void for_few_rows(const AttentionArgs& args, const F& f) {
    const std::uint32_t all = args.rows.count;
    const std::size_t bytes = args.kv.head_dim * size_of(args.type);
    for (std::uint32_t first = 0; first < all; first += kFewRows) {
      AttentionArgs part = args;
      part.rows.count = std::min(kFewRows, all - first);
      part.rows.tokens += first;
      part.rows.sequences += first;
      part.rows.positions += first;
      part.qkv = static_cast<const std::byte*>(args.qkv) +
                 first * (args.heads + std::size_t{2} * args.kv.kv_heads) * bytes;
      part.out = static_cast<std::byte*>(args.out) + std::size_t{first} * args.heads * bytes;
      f(part);
    }
  }

  template <typename F>
  static void for_few_pairs(const ExpertPairsArgs& args, const F& f) {
    for (std::uint32_t first = 0; first < args.rows; first += kFewRows) {
      ExpertPairsArgs part = args;
      part.rows = std::min(kFewRows, args.rows - first);
      const std::size_t pair = std::size_t{first} * args.per_token, bytes = size_of(args.type);
      part.ids += pair;
      part.x = static_cast<const std::byte*>(args.x) + first * args.shape.hidden * bytes;
      part.inner = static_cast<std::byte*>(args.inner) + pair * 2 * args.shape.inter * bytes;
      part.out = static_cast<std::byte*>(args.out) + pair * args.shape.hidden * bytes;
      f(part);
    }
  }

  IDevice& device_;
  bool overlap_;
  std::uint32_t processors_;
  std::size_t shared_of_processor_, shared_of_block_;
  mutable CudaMatmul matmul_;
  mutable Space partials_, attention_arrived_, best_, sample_arrived_, dequantised_;
};

}  // namespace

std::unique_ptr<IKernels> make_cuda_kernels(IDevice& device) {
  return std::make_unique<CudaKernels>(device);
}

}  // namespace sluice
