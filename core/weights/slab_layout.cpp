#include "core/weights/slab_layout.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/round_up.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kTensorAlignment = 16;

constexpr std::uint64_t tensor_aligned(std::uint64_t n) { return round_up(n, kTensorAlignment); }

void choose_types(UnitSpec& unit, const ITensorSource& source, DType dtype) {
  const TensorSpec* before = nullptr;
  for (TensorSpec& tensor : unit.tensors) {
    const DType stored = source.stored_type(tensor);
    tensor.dtype = dtype == DType::f32 ? stored : dtype;
    if (tensor.joined && before && tensor.dtype != before->dtype)
      throw InputError(
          "{}: tensor {} is {} and {} is {}; they are read as one matrix and must have "
          "one type (dtype bf16 or f16 casts them)",
          source.describe(), before->name, name_of(before->dtype), tensor.name,
          name_of(tensor.dtype));
    before = &tensor;
  }
}

bool can_have(const UnitSpec& unit, const ITensorSource& source, Encoding encoding) {
  if (encoding == Encoding::native) return true;
  return std::ranges::any_of(unit.tensors, &TensorSpec::is_matrix) &&
         std::ranges::all_of(unit.tensors, [&](const TensorSpec& tensor) {
           return source.quantised_as(tensor).value_or(encoding) == encoding;
         });
}

}  // namespace

ModelLayout::ModelLayout(ModelPlan plan, const ITensorSource& source, DType dtype)
    : plan_(std::move(plan)), places_(plan_.units.size()) {
  for (UnitId id = 0; id < plan_.units.size(); ++id) {
    UnitSpec& unit = plan_.units[id];
    choose_types(unit, source, dtype);
    UnitInfo& info = units_.emplace_back(UnitInfo{id, unit.kind, unit.layer, unit.expert, {}});
    for (std::size_t e = 0; e < kEncodings; ++e)
      if (const auto encoding = static_cast<Encoding>(e); can_have(unit, source, encoding))
        info.bytes[e] = lay_out(id, encoding);
    if (is_streamed(unit.kind)) order_.push_back(id);
  }
}

std::uint64_t ModelLayout::rows_of_matrix(UnitId unit, std::size_t tensor) const {
  const std::vector<TensorSpec>& tensors = plan_.units[unit].tensors;
  std::uint64_t rows = tensors[tensor].shape[0];
  for (std::size_t next = tensor + 1; next < tensors.size() && tensors[next].joined; ++next)
    rows += tensors[next].shape[0];
  return rows;
}

std::uint64_t ModelLayout::lay_out(UnitId unit, Encoding encoding) {
  const std::vector<TensorSpec>& tensors = plan_.units[unit].tensors;
  std::vector<TensorPlace>& places = places_[unit][static_cast<std::size_t>(encoding)];
  std::uint64_t end = 0;
  std::uint64_t codes = 0, scales = 0;  // where the next joined matrix goes
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    if (encoding == Encoding::native || !tensor.is_matrix) {
      places.push_back({.data = tensor.joined ? end : tensor_aligned(end)});
      end = places.back().data + tensor.elements() * size_of(tensor.dtype);
      continue;
    }
    const std::uint64_t code_bytes = code_row_bytes(encoding, tensor.shape[1]);
    const std::uint64_t scale_bytes = scale_row_bytes(encoding, tensor.shape[1]);
    if (!tensor.joined) {
      const std::uint64_t rows = rows_of_matrix(unit, i);
      codes = tensor_aligned(end);
      scales = tensor_aligned(codes + rows * code_bytes);
      end = scales + rows * scale_bytes;
    }
    places.push_back({codes, scales, true});
    codes += tensor.shape[0] * code_bytes;
    scales += tensor.shape[0] * scale_bytes;
  }
  return end;
}

}  // namespace sluice
