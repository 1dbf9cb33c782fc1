#include "models/ops/ops.hpp"

#include <utility>

#include "core/weights/encoding.hpp"
#include "models/ops/declared.hpp"

namespace sluice {
namespace {

void add_pages(Ranges& ranges, const KvLayer& kv) {
  ranges.add(kv.pages, kv.page_bytes * kv.page_count);
}

void add_page_table(Ranges& ranges, const KvLayer& kv) {
  ranges.add(kv.page_table, std::uint64_t{kv.sequences} * kv.pages_per_sequence * kIndexBytes);
}

std::uint64_t weight_bytes(const LinearArgs& args) {
  if (args.encoding == Encoding::native)
    return std::uint64_t{args.n} * args.k * size_of(args.weight_type);
  return args.n * (code_row_bytes(args.encoding, args.k) + scale_row_bytes(args.encoding, args.k));
}

void declare(Declared& op, const RopeStoreArgs& args, const Weights& weights) {
  const std::uint64_t rows = args.rows.count;
  const std::uint64_t columns =
      (args.heads + std::uint64_t{2} * args.kv.kv_heads) * args.kv.head_dim;
  const std::uint64_t qkv_bytes = rows * columns * size_of(args.type);
  const std::uint64_t table_row_bytes = args.kv.head_dim / 2 * sizeof(float);
  op.reads.add(args.qkv, qkv_bytes);
  op.reads.add(args.rows.sequences, rows * kIndexBytes);
  op.reads.add(args.rows.positions, rows * kIndexBytes);
  op.reads.add(args.cos, args.context * table_row_bytes);
  op.reads.add(args.sin, args.context * table_row_bytes);
  if (args.q_norm || args.k_norm) op.reads.add(weights.range);
  add_page_table(op.reads, args.kv);
  op.writes.add(args.qkv, qkv_bytes);
  add_pages(op.writes, args.kv);
  op.bytes += 2 * qkv_bytes + 2 * rows * table_row_bytes;
  op.flops += 6 * rows * columns;
}

void declare(Declared& op, const AttentionArgs& args) {
  const std::uint64_t rows = args.rows.count;
  const std::uint64_t head_dim = args.kv.head_dim;
  if (args.attended < rows || args.cached > args.attended || (rows != 0 && args.cached == 0)) {
    throw Error(
        "attention of {} rows is told that they see {} positions, {} of them distinct: each row "
        "sees "
        "its own at least",
        rows, args.attended, args.cached);
  }
  op.reads.add(args.qkv,
               rows * (args.heads + 2 * args.kv.kv_heads) * head_dim * size_of(args.type));
  op.reads.add(args.rows.sequences, rows * kIndexBytes);
  op.reads.add(args.rows.positions, rows * kIndexBytes);
  add_page_table(op.reads, args.kv);
  add_pages(op.reads, args.kv);
  op.writes.add(args.out, rows * args.heads * head_dim * size_of(args.type));
  op.bytes +=
      2 * (rows * args.heads + args.cached * args.kv.kv_heads) * head_dim * size_of(args.type);
  op.flops += 4 * args.attended * args.heads * head_dim;
}

void declare(Declared& op, const SiluMulArgs& args) {
  const std::uint64_t out_bytes = std::uint64_t{args.rows} * args.inter * size_of(args.type);
  op.reads.add(args.gate_up, 2 * out_bytes);
  op.writes.add(args.out, out_bytes);
  op.bytes += 3 * out_bytes;
  op.flops += 5 * std::uint64_t{args.rows} * args.inter;
}

}  // namespace

void declare(Declared& op, const RmsNormArgs& args, const Weights& weights) {
  const std::uint64_t values = std::uint64_t{args.rows} * args.cols;
  op.reads.add(args.x, values * size_of(args.type));
  op.reads.add(weights.range);
  op.writes.add(args.out, values * size_of(args.type));
  op.bytes += 2 * values * size_of(args.type) + args.cols * size_of(args.weight_type);
  op.flops += 4 * values;
}

void declare(Declared& op, const LinearArgs& args, const Weights& weights) {
  const std::uint64_t in_bytes = std::uint64_t{args.rows} * args.k * size_of(args.type);
  const std::uint64_t out_bytes = std::uint64_t{args.rows} * args.n * size_of(args.type);
  const std::uint64_t cells = std::uint64_t{args.n} * args.k;
  op.reads.add(args.x, in_bytes);
  op.reads.add(weights.range);
  if (args.residual) {
    op.reads.add(args.residual, out_bytes);
    op.writes.add(args.residual, out_bytes);
  }
  if (args.out) op.writes.add(args.out, out_bytes);
  op.bytes += in_bytes + weight_bytes(args) + (args.bias ? args.n * size_of(args.bias_type) : 0) +
              (args.residual ? 2 : 1) * out_bytes;
  op.flops += 2 * args.rows * cells;
}

Ops::Ops(IDevice& device, StreamId stream) : Ops(device, stream, make_kernels(device)) {}

Ops::Ops(IDevice& device, StreamId stream, std::unique_ptr<IKernels> kernels)
    : device_(device), stream_(stream), kernels_(std::move(kernels)) {}

void Ops::embed(const EmbedArgs& args) {
  const std::uint64_t values = std::uint64_t{args.rows.count} * args.hidden;
  Declared op("embed");
  op.reads.add(args.rows.tokens, args.rows.count * kIndexBytes);
  op.reads.add(args.table, std::uint64_t{args.vocab} * args.hidden * size_of(args.table_type));
  op.writes.add(args.out, values * size_of(args.type));
  op.bytes = values * (size_of(args.table_type) + size_of(args.type));
  op.put(device_, stream_,
         [kernels = kernels_.get(), args](NativeStream stream) { kernels->embed(args, stream); });
}

void Ops::rms_norm(const RmsNormArgs& args, const Weights& weights) {
  Declared op("rms_norm");
  declare(op, args, weights);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->rms_norm(args, stream);
  });
}

void Ops::linear(const LinearArgs& args, const Weights& weights) {
  Declared op("linear");
  declare(op, args, weights);
  op.put(device_, stream_,
         [kernels = kernels_.get(), args](NativeStream stream) { kernels->linear(args, stream); });
}

void Ops::rope_store(const RopeStoreArgs& args, const Weights& weights) {
  Declared op("rope_store");
  declare(op, args, weights);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->rope_store(args, stream);
  });
}

void Ops::attention(const AttentionArgs& args) {
  Declared op("attention");
  declare(op, args);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->attention(args, stream);
  });
}

void Ops::silu_mul(const SiluMulArgs& args) {
  Declared op("silu_mul");
  declare(op, args);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->silu_mul(args, stream);
  });
}

void Ops::norm_linear(const NormLinearArgs& args, const Weights& weights) {
  Declared op("norm_linear");
  declare(op, args.norm, weights);
  declare(op, args.linear, weights);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->norm_linear(args, stream);
  });
}

void Ops::gated(const GatedArgs& args, const Weights& weights) {
  Declared op("gated");
  declare(op, args.norm, weights);
  declare(op, args.gate_up, weights);
  declare(op, args.silu);
  op.put(device_, stream_,
         [kernels = kernels_.get(), args](NativeStream stream) { kernels->gated(args, stream); });
}

void Ops::rope_attention(const RopeAttentionArgs& args, const Weights& weights) {
  Declared op("rope_attention");
  declare(op, args.rope, weights);
  declare(op, args.attention);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->rope_attention(args, stream);
  });
}

void Ops::sample(const SampleArgs& args, std::uint32_t sequences) {
  const std::uint64_t logit_bytes = std::uint64_t{args.rows} * args.vocab * size_of(args.type);
  const std::uint64_t state_bytes = sequences * kIndexBytes;
  Declared op("sample");
  op.reads.add(args.logits, logit_bytes);
  op.reads.add(args.sequences, args.rows * kIndexBytes);
  op.reads.add(args.params, sequences * sizeof(SamplingParams));
  op.reads.add(args.stop_ids, args.stop_count * kIndexBytes);
  op.reads.add(args.lengths, state_bytes);
  op.reads.add(args.generated, state_bytes);
  op.writes.add(args.next_tokens, state_bytes);
  op.writes.add(args.lengths, state_bytes);
  op.writes.add(args.generated, state_bytes);
  op.writes.add(args.chosen, args.rows * kIndexBytes);
  op.bytes = logit_bytes;
  op.flops = std::uint64_t{args.rows} * args.vocab;
  op.put(device_, stream_,
         [kernels = kernels_.get(), args](NativeStream stream) { kernels->sample(args, stream); });
}

void Ops::decode_rows(const DecodeRowsArgs& args, std::uint32_t sequences) {
  const std::uint64_t row_bytes = args.count * kIndexBytes;
  const std::uint64_t state_bytes = sequences * kIndexBytes;
  Declared op("decode_rows");
  op.reads.add(args.active, row_bytes);
  op.reads.add(args.next_tokens, state_bytes);
  op.reads.add(args.lengths, state_bytes);
  op.writes.add(args.tokens, row_bytes);
  op.writes.add(args.sequences, row_bytes);
  op.writes.add(args.positions, row_bytes);
  op.bytes = 6 * row_bytes;
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->decode_rows(args, stream);
  });
}

void Ops::prepare(const KernelShapes& shapes) {
  if (kernels_) kernels_->prepare(shapes);
}

void Ops::upload(void* to, const void* from, std::uint64_t bytes) {
  const Range reads = range_of(from, bytes);
  const Range writes = range_of(to, bytes);
  Op op;
  op.name = "upload";
  op.on = Resource::h2d;
  op.bytes = bytes;
  op.reads = {&reads, 1};
  op.writes = {&writes, 1};
  device_.copy(stream_, op, to, from, bytes);
}

void Ops::download(void* to, const void* from, std::uint64_t bytes) {
  const Range reads = range_of(from, bytes);
  const Range writes = range_of(to, bytes);
  Op op;
  op.name = "download";
  op.on = Resource::d2h;
  op.bytes = bytes;
  op.reads = {&reads, 1};
  op.writes = {&writes, 1};
  device_.copy(stream_, op, to, from, bytes);
}

}  // namespace sluice
