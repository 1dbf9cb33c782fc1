#include "models/ops/cuda_first_run.hpp"

#include <algorithm>

#include "core/device/cuda_error.hpp"
#include "models/ops/cuda_launchers.hpp"

namespace sluice {

void cuda_first_run(IDevice& device, const IKernels& kernels, const KernelShapes& shapes,
                    cudaStream_t stream) {
  // Operands share one block of zeros: what they come to does not matter.
  constexpr std::uint32_t kSize = 64;        // of every row, and of the vocabulary
  constexpr std::uint32_t kManyRows = 8192;  // of weights: more than a GPU works on at a time
  const std::uint32_t columns = (shapes.heads + 2 * shapes.kv_heads) * shapes.head_dim;
  KvLayer kv;
  kv.page_bytes =
      std::uint64_t{2} * shapes.kv_heads * kPageTokens * shapes.head_dim * size_of(shapes.type);
  const std::uint64_t bytes = std::max<std::uint64_t>(
      {kv.page_bytes, std::uint64_t{kManyRows} * kSize * sizeof(float),
       std::uint64_t{columns} * sizeof(float), kSize * sizeof(SamplingParams)});
  const Buffer zeros(device, Buffer::Where::device, bytes, "the kernels' first run");
  SLUICE_CUDA_CHECK(cudaMemsetAsync(zeros.data(), 0, bytes, stream));
  std::byte* const data = zeros.data();
  auto* const ints = zeros.as<std::int32_t>();
  kv.pages = data;
  kv.page_count = kv.sequences = kv.pages_per_sequence = 1;
  kv.page_table = ints;
  kv.kv_heads = shapes.kv_heads;
  kv.head_dim = shapes.head_dim;
  const RowIndex rows{ints, ints, ints, 1};
  const DType type = shapes.type;

  kernels.decode_rows({.active = ints,
                       .next_tokens = ints,
                       .lengths = ints,
                       .tokens = ints,
                       .sequences = ints,
                       .positions = ints,
                       .count = 1},
                      stream);
  kernels.embed({.rows = rows,
                 .table = data,
                 .table_type = type,
                 .out = data,
                 .type = type,
                 .vocab = 1,
                 .hidden = kSize},
                stream);
  for (const std::uint32_t count : {1u, kFewRows}) {
    const RmsNormArgs norm{.x = data,
                           .weight = data,
                           .weight_type = type,
                           .out = data,
                           .type = type,
                           .rows = count,
                           .cols = kSize,
                           .eps = 1};
    LinearArgs linear{.x = data,
                      .weight = data,
                      .weight_type = type,
                      .residual = data,
                      .out = data,
                      .type = type,
                      .rows = count,
                      .n = kSize,
                      .k = kSize};
    const SiluMulArgs silu{
        .gate_up = data, .out = data, .type = type, .rows = count, .inter = kSize / 2};
    kernels.rms_norm(norm, stream);
    kernels.norm_linear({norm, linear}, stream);
    kernels.linear(linear, stream);
    kernels.silu_mul(silu, stream);
    if (type != DType::f32) cuda_add_residual(linear, {.stream = stream});
    linear.n = kManyRows;
    kernels.linear(linear, stream);
  }
  const RopeStoreArgs rope{.qkv = data,
                           .type = type,
                           .rows = rows,
                           .heads = shapes.heads,
                           .cos = zeros.as<float>(),
                           .sin = zeros.as<float>(),
                           .context = 1,
                           .kv = kv};
  AttentionArgs attention{.qkv = data,
                          .type = type,
                          .rows = rows,
                          .heads = shapes.heads,
                          .scale = 1,
                          .kv = kv,
                          .out = data};
  kernels.rope_attention({rope, attention}, stream);
  attention.consecutive = true;
  kernels.rope_attention({rope, attention}, stream);
  kernels.sample({.logits = data,
                  .type = type,
                  .rows = 1,
                  .vocab = kSize,
                  .sequences = ints,
                  .params = zeros.as<SamplingParams>(),
                  .next_tokens = ints,
                  .lengths = ints,
                  .generated = ints,
                  .chosen = ints},
                 stream);
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

}  // namespace sluice
