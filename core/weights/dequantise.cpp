#include "core/weights/dequantise.hpp"

#include <algorithm>
#include <cstring>

#include "core/parallel.hpp"
#include "core/weights/encoding.hpp"
#if SLUICE_HAS_CUDA
#include "core/weights/cuda_dequantise.hpp"
#endif

namespace sluice {
namespace {

// Of one task of the CPU: large enough not to be felt, small enough to share out.
constexpr std::uint64_t kTaskWeights = 256 << 10;

void cpu_dequantise(const DequantiseArgs& args) {
  for (std::uint32_t i = 0; i < args.count; ++i) {
    const DequantisePart& part = args.parts[i];
    if (part.encoding == Encoding::native) {
      std::memcpy(part.to, part.from, part.k);
      continue;
    }
    const std::uint64_t at_once = std::max<std::uint64_t>(1, kTaskWeights / part.k);
    parallel_for((part.rows + at_once - 1) / at_once, [&](std::size_t task) {
      const std::uint64_t row = task * at_once;
      dequantise_rows(part.encoding, part.from + row * code_row_bytes(part.encoding, part.k),
                      part.scales + row * scale_row_bytes(part.encoding, part.k),
                      std::min(at_once, part.rows - row), part.k, part.type,
                      part.to + row * part.k * size_of(part.type));
    });
  }
}

}  // namespace

DequantiseArgs dequantise_args(const ModelLayout& layout, UnitId unit, Encoding encoding,
                               const std::byte* from, std::byte* to) {
  DequantiseArgs args;
  const auto add = [&](const DequantisePart& part) { args.parts.at(args.count++) = part; };
  const std::vector<TensorSpec>& tensors = layout.plan().units[unit].tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlace& wire = layout.place(unit, i, encoding);
    const TensorPlace& native = layout.place(unit, i, Encoding::native);
    if (!wire.quantised) {
      // The rest, too: the matrices come first, and what follows them lies at the same distances in
      // every encoding.
      add({.from = from + wire.data,
           .to = to + native.data,
           .rows = 1,
           .k = layout.units()[unit].size(Encoding::native) - native.data});
      break;
    }
    if (tensors[i].joined) continue;
    add({.encoding = encoding,
         .type = tensors[i].dtype,
         .from = from + wire.data,
         .scales = from + wire.scales,
         .to = to + native.data,
         .rows = layout.rows_of_matrix(unit, i),
         .k = tensors[i].shape[1]});
  }
  return args;
}

void enqueue_dequantise(IDevice& device, StreamId stream, const ModelLayout& layout, UnitId unit,
                        Encoding encoding, const std::byte* from, std::byte* to) {
  const UnitInfo& info = layout.units()[unit];
  const std::array reads{range_of(from, info.size(encoding))};
  const std::array writes{range_of(to, info.size(Encoding::native))};
  const Op op{.name = "dequantise",
              .unit = unit,
              .bytes = info.size(encoding) + info.size(Encoding::native),
              .reads = reads,
              .writes = writes};
  const DequantiseArgs args = dequantise_args(layout, unit, encoding, from, to);
#if SLUICE_HAS_CUDA
  if (device.info().kind == DeviceKind::cuda)
    return device.enqueue(stream, op, [args](NativeStream on) { cuda_dequantise(args, on); });
#endif
  device.enqueue(stream, op, [args](NativeStream) { cpu_dequantise(args); });
}

}  // namespace sluice
