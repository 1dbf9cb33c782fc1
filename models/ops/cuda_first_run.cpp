#include "models/ops/cuda_first_run.hpp"

#include <algorithm>

#include "core/device/cuda_error.hpp"
#include "models/ops/cuda_launchers.hpp"

namespace sluice {
namespace {

constexpr std::uint32_t kApart = 256;  // bytes behind the zeros, for what is not zero

// A layer of one expert, whose rows are as long as the kernels of their own want them. `data`: zeros;
// `chosen`: kApart bytes.
void run_routed_experts(const IKernels& kernels, DType type, std::byte* data, std::byte* chosen,
                        cudaStream_t stream) {
  constexpr std::uint32_t kSize = 512;
  const auto table = reinterpret_cast<ExpertTable>(chosen);
  auto* const id = reinterpret_cast<std::int32_t*>(chosen + kApart / 2);
  auto* const weight = reinterpret_cast<float*>(chosen + kApart / 4);
  kernels.place_experts({.table = table, .count = 1, .slabs = {data}}, stream);
  const RmsNormArgs norm{.x = data,
                         .weight = data,
                         .weight_type = type,
                         .out = data,
                         .type = type,
                         .rows = 1,
                         .cols = kSize,
                         .eps = 1};
  const LinearArgs scores{.x = data,
                          .weight = data,
                          .weight_type = type,
                          .out = data,
                          .type = type,
                          .rows = 1,
                          .n = 1,
                          .k = kSize};
  kernels.routed_experts({.router = {.norm = norm, .linear = scores, .keeps_normed = true},
                          .route = {.scores = data,
                                    .type = type,
                                    .rows = 1,
                                    .experts = 1,
                                    .per_token = 1,
                                    .ids = id,
                                    .weights = weight},
                          .table = table,
                          .shape = {.weight_type = type, .hidden = kSize, .inter = kSize},
                          .inner = data,
                          .results = data,
                          .residual = data},
                         stream);
}

// `data`: zeros, as many as rows of `size` values take; `chosen`: memory for what is not zero.
void run_experts(const IKernels& kernels, DType type, std::byte* data, std::byte* chosen,
                 std::uint32_t size, cudaStream_t stream) {
  auto* const ints = reinterpret_cast<std::int32_t*>(data);
  auto* const floats = reinterpret_cast<float*>(data);
  kernels.route({.scores = data,
                 .type = type,
                 .rows = 1,
                 .experts = 1,
                 .per_token = 1,
                 .ids = reinterpret_cast<std::int32_t*>(chosen),
                 .weights = reinterpret_cast<float*>(chosen) + 1},
                stream);
  kernels.place_experts({.table = reinterpret_cast<ExpertTable>(data)}, stream);
  // Of no expert, so that nothing looks into the table.
  for (const std::uint32_t rows : {1u, kFewRows})
    kernels.expert_pairs({.x = data,
                          .type = type,
                          .rows = rows,
                          .per_token = 1,
                          .ids = ints,
                          .table = reinterpret_cast<ExpertTable>(data),
                          .which = {},
                          .shape = {.weight_type = type, .hidden = size, .inter = size},
                          .inner = data,
                          .out = data},
                         stream);
  kernels.combine({.pairs = data,
                   .weights = floats,
                   .residual = data,
                   .type = type,
                   .rows = 1,
                   .per_token = 1,
                   .hidden = size},
                  stream);
  run_routed_experts(kernels, type, data, chosen, stream);
  kernels.gather_rows({.x = data,
                       .pairs = ints,
                       .out = data,
                       .type = type,
                       .count = 1,
                       .per_token = 1,
                       .hidden = size},
                      stream);
  kernels.add_rows({.y = data,
                    .pairs = ints,
                    .weights = floats,
                    .sums = floats,
                    .type = type,
                    .count = 1,
                    .per_token = 1,
                    .hidden = size},
                   stream);
  kernels.clear_sums({.sums = floats, .rows = 1, .hidden = size}, stream);
  kernels.add_sums({.sums = floats, .residual = data, .type = type, .rows = 1, .hidden = size},
                   stream);
}

}  // namespace

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
  const Buffer zeros(device, Buffer::Where::device, bytes + kApart, "the kernels' first run");
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
  if (shapes.experts) run_experts(kernels, type, data, data + bytes, kSize, stream);
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
