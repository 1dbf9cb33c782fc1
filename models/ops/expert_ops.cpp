// The front end's operations of a layer of experts.
#include "core/weights/encoding.hpp"
#include "models/ops/declared.hpp"
#include "models/ops/ops.hpp"

namespace sluice {
namespace {

std::uint64_t matrix_bytes(const ExpertShape& shape, std::uint64_t rows, std::uint64_t columns) {
  if (shape.encoding == Encoding::native) return rows * columns * size_of(shape.weight_type);
  return rows *
         (code_row_bytes(shape.encoding, columns) + scale_row_bytes(shape.encoding, columns));
}

void declare(Declared& op, const RouteArgs& args) {
  const std::uint64_t scores = std::uint64_t{args.rows} * args.experts;
  const std::uint64_t pairs = std::uint64_t{args.rows} * args.per_token;
  op.reads.add(args.scores, scores * size_of(args.type));
  if (args.given) op.reads.add(args.given, pairs * kIndexBytes);
  op.writes.add(args.ids, pairs * kIndexBytes);
  op.writes.add(args.weights, pairs * sizeof(float));
  if (args.host_ids) op.writes.add(args.host_ids, pairs * kIndexBytes);
  if (args.host_weights) op.writes.add(args.host_weights, pairs * sizeof(float));
  if (args.done) op.writes.add(args.done, args.rows * sizeof(*args.done));
  op.bytes += scores * size_of(args.type) + pairs * (kIndexBytes + sizeof(float));
  op.flops += 4 * scores;
}

// But for the slabs, which are as many as there are.
void declare(Declared& op, const ExpertPairsArgs& args, const ExpertReads& with) {
  const std::uint64_t element = size_of(args.type);
  const std::uint64_t all = std::uint64_t{args.rows} * args.per_token;
  const std::uint64_t hidden = args.shape.hidden, inter = args.shape.inter;
  op.reads.add(args.x, args.rows * hidden * element);
  op.reads.add(args.ids, all * kIndexBytes);
  op.reads.add(args.table, with.experts * sizeof(*args.table));
  op.writes.add(args.inner, all * 2 * inter * element);
  op.writes.add(args.out, all * hidden * element);
  op.bytes += with.chosen * (matrix_bytes(args.shape, 2 * inter, hidden) +
                             matrix_bytes(args.shape, hidden, inter)) +
              with.pairs * (2 * hidden + 4 * inter) * element;
  op.flops += with.pairs * 6 * hidden * inter;
}

void declare(Declared& op, const CombineArgs& args) {
  const std::uint64_t pairs = std::uint64_t{args.rows} * args.per_token;
  const std::uint64_t row_bytes = args.hidden * size_of(args.type);
  op.reads.add(args.pairs, pairs * row_bytes);
  op.reads.add(args.weights, pairs * sizeof(float));
  op.reads.add(args.residual, args.rows * row_bytes);
  op.writes.add(args.residual, args.rows * row_bytes);
  op.bytes += (pairs + 2 * args.rows) * row_bytes;
  op.flops += 2 * pairs * args.hidden;
}

}  // namespace

void Ops::route(const RouteArgs& args) {
  Declared op("route");
  declare(op, args);
  op.put(device_, stream_,
         [kernels = kernels_.get(), args](NativeStream stream) { kernels->route(args, stream); });
}

void Ops::place_experts(const PlaceExpertsArgs& args) {
  Declared op("place_experts");
  for (std::uint32_t i = 0; i < args.count; ++i)
    op.writes.add(args.table + args.ids[i], sizeof(*args.table));
  op.bytes = args.count * sizeof(*args.table);
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->place_experts(args, stream);
  });
}

void Ops::expert_pairs(const ExpertPairsArgs& args, const ExpertReads& with) {
  Declared op("expert_pairs");
  declare(op, args, with);
  op.put(
      device_, stream_,
      [kernels = kernels_.get(), args](NativeStream stream) {
        kernels->expert_pairs(args, stream);
      },
      with.slabs);
}

void Ops::combine(const CombineArgs& args) {
  Declared op("combine");
  declare(op, args);
  op.put(device_, stream_,
         [kernels = kernels_.get(), args](NativeStream stream) { kernels->combine(args, stream); });
}

void Ops::routed_experts(const RoutedExpertsArgs& args, const Weights& weights,
                         const ExpertReads& with) {
  Declared op("routed_experts");
  op.parts = 4;  // a single fixed cost, which was measured of a product, would be too little by far
  declare(op, args.router.norm, weights);
  declare(op, args.router.linear, weights);
  declare(op, args.route);
  declare(op, args.pairs(), with);
  declare(op, args.combine());
  op.put(
      device_, stream_,
      [kernels = kernels_.get(), args](NativeStream stream) {
        kernels->routed_experts(args, stream);
      },
      with.slabs);
}

void Ops::gather_rows(const GatherRowsArgs& args, std::uint32_t rows) {
  const std::uint64_t row_bytes = args.hidden * size_of(args.type);
  Declared op("gather_rows");
  op.reads.add(args.x, rows * row_bytes);
  op.reads.add(args.pairs, args.count * kIndexBytes);
  op.writes.add(args.out, args.count * row_bytes);
  op.bytes = 2 * args.count * row_bytes;
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->gather_rows(args, stream);
  });
}

void Ops::add_rows(const AddRowsArgs& args, std::uint32_t rows) {
  const std::uint64_t row_bytes = args.hidden * size_of(args.type);
  Declared op("add_rows");
  op.reads.add(args.y, args.count * row_bytes);
  op.reads.add(args.pairs, args.count * kIndexBytes);
  op.reads.add(args.weights, std::uint64_t{rows} * args.per_token * sizeof(float));
  const std::uint64_t sum_bytes = args.hidden * sizeof(float);
  op.reads.add(args.sums, rows * sum_bytes);
  op.writes.add(args.sums, rows * sum_bytes);
  op.bytes = args.count * (row_bytes + 2 * sum_bytes);
  op.flops = 2 * std::uint64_t{args.count} * args.hidden;
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->add_rows(args, stream);
  });
}

void Ops::clear_sums(const ClearSumsArgs& args) {
  const std::uint64_t bytes = std::uint64_t{args.rows} * args.hidden * sizeof(float);
  Declared op("clear_sums");
  op.writes.add(args.sums, bytes);
  op.bytes = bytes;
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->clear_sums(args, stream);
  });
}

void Ops::add_sums(const AddSumsArgs& args) {
  const std::uint64_t values = std::uint64_t{args.rows} * args.hidden;
  const std::uint64_t row_bytes = values * size_of(args.type);
  Declared op("add_sums");
  op.reads.add(args.sums, values * sizeof(float));
  op.reads.add(args.residual, row_bytes);
  op.writes.add(args.residual, row_bytes);
  op.bytes = values * sizeof(float) + 2 * row_bytes;
  op.flops = values;
  op.put(device_, stream_, [kernels = kernels_.get(), args](NativeStream stream) {
    kernels->add_sums(args, stream);
  });
}

}  // namespace sluice
