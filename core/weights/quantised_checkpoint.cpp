#include "core/weights/quantised_checkpoint.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/weights/convert.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {

QuantisedCheckpoint::QuantisedCheckpoint(std::unique_ptr<Checkpoint> checkpoint,
                                         const ModelPlan& plan, QuantisedFormat format, DType dtype)
    : checkpoint_(std::move(checkpoint)), format_(make_quantised_format(format)), dtype_(dtype) {
  std::unordered_set<std::string_view> known;
  for (const UnitSpec& unit : plan.units)
    for (const TensorSpec& tensor : unit.tensors) known.insert(tensor.name);
  for (const UnitSpec& unit : plan.units) {
    for (const TensorSpec& tensor : unit.tensors) {
      if (!tensor.is_matrix || !format_->stores(*checkpoint_, tensor)) continue;
      format_->check(*checkpoint_, tensor);
      if (checkpoint_->has(tensor.name) &&
          std::ranges::find(format_->parts(), "weight") == format_->parts().end())
        throw InputError("{}: {} is there twice, as values and quantised ({}{})",
                         checkpoint_->describe(), tensor.name, module_of(tensor),
                         format_->parts()[0]);
      const std::string bias = module_of(tensor) + "bias";
      if (checkpoint_->has(bias) && !known.contains(bias)) leave_out_bias(tensor);
      if (matrices_.empty()) {
        const std::uint64_t k = tensor.shape[1];
        std::vector<std::byte> codes(code_row_bytes(format_->encoding(), k));
        std::vector<std::byte> scales(scale_row_bytes(format_->encoding(), k));
        format_->read(*checkpoint_, tensor, 0, 1, codes.data(), scales.data());
      }
      matrices_.insert(tensor.name);
    }
  }
  for (const std::string& matrix : matrices_)
    for (const std::string_view part : format_->parts())
      left_out_.insert(matrix.substr(0, matrix.rfind('.') + 1) + std::string(part));
}

void QuantisedCheckpoint::leave_out_bias(const TensorSpec& matrix) {
  const std::string name = module_of(matrix) + "bias";
  const SafetensorsFile& file = checkpoint_->file_of(name);
  const StoredTensor stored = file.tensor(name);
  std::vector<float> values(stored.data.size() / size_of(stored.dtype));
  convert(stored.dtype, stored.data.data(), DType::f32, reinterpret_cast<std::byte*>(values.data()),
          values.size());
  if (std::ranges::any_of(values, [](float x) { return x != 0; }))
    throw InputError("{}: tensor {} is not zero, and the model in its config.json has no such bias",
                     file.path().string(), name);
  left_out_.insert(name);
}

DType QuantisedCheckpoint::stored_type(const TensorSpec& tensor) const {
  if (!holds(tensor)) return checkpoint_->stored_type(tensor);
  format_->check(*checkpoint_, tensor);
  return dtype_;
}

bool QuantisedCheckpoint::has(const std::string& name) const {
  return matrices_.contains(name) || checkpoint_->has(name);
}

void QuantisedCheckpoint::read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
                               std::byte* to) const {
  if (!holds(tensor)) return checkpoint_->read(tensor, first, n, to);
  if (n == 0) return;
  // Whole rows, of which the part that was asked for is kept.
  const std::uint64_t k = tensor.shape[1], first_row = first / k;
  const std::uint64_t rows = (first + n - 1) / k + 1 - first_row;
  const Encoding encoding = format_->encoding();
  std::vector<std::byte> codes(rows * code_row_bytes(encoding, k));
  std::vector<std::byte> scales(rows * scale_row_bytes(encoding, k));
  std::vector<std::byte> values(rows * k * size_of(dtype_));
  read_quantised(tensor, encoding, first_row, rows, codes.data(), scales.data());
  dequantise_rows(encoding, codes.data(), scales.data(), rows, k, dtype_, values.data());
  std::memcpy(to, values.data() + (first - first_row * k) * size_of(dtype_), n * size_of(dtype_));
}

bool QuantisedCheckpoint::is_quantised(const TensorSpec& tensor, Encoding encoding) const {
  return quantised_as(tensor) == encoding;
}

std::optional<Encoding> QuantisedCheckpoint::quantised_as(const TensorSpec& tensor) const {
  if (!holds(tensor)) return std::nullopt;
  return format_->encoding();
}

void QuantisedCheckpoint::read_quantised(const TensorSpec& tensor, Encoding encoding,
                                         std::uint64_t first, std::uint64_t rows, std::byte* codes,
                                         std::byte* scales) const {
  if (!is_quantised(tensor, encoding) || first > tensor.shape[0] || rows > tensor.shape[0] - first)
    throw Error("{}: rows {} to {} of {} asked for as {}", checkpoint_->describe(), first,
                first + rows, tensor.name, name_of(encoding));
  format_->read(*checkpoint_, tensor, first, rows, codes, scales);
}

std::vector<std::string> QuantisedCheckpoint::names() const {
  std::vector<std::string> names(matrices_.begin(), matrices_.end());
  for (std::string& name : checkpoint_->names())
    if (!left_out_.contains(name)) names.push_back(std::move(name));
  return names;
}

}  // namespace sluice
