// "int-quantized" of compressed-tensors, with one scale for each output channel: of a matrix [n, k]
//   weight       I8 [n, k]
//   weight_scale F32, BF16 or F16 [n, 1]
#include <array>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/weights/convert.hpp"
#include "core/weights/encoding.hpp"
#include "core/weights/quantised_format.hpp"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 2> kChannelParts{"weight", "weight_scale"};
constexpr std::array<std::string_view, 1> kBytes{"I8"};
constexpr std::array kScaleTypes{safetensors_name(DType::f32), safetensors_name(DType::bf16),
                                 safetensors_name(DType::f16)};

class Int8ChannelFormat final : public IQuantisedFormat {
 public:
  Encoding encoding() const override { return Encoding::int8; }
  std::span<const std::string_view> parts() const override { return kChannelParts; }
  bool stores(const Checkpoint& checkpoint, const TensorSpec& matrix) const override {
    if (checkpoint.has(module_of(matrix) + std::string(kChannelParts[1]))) return true;
    return checkpoint.has(matrix.name) &&
           checkpoint.file_of(matrix.name).raw(matrix.name).type == kBytes[0];
  }
  void check(const Checkpoint& checkpoint, const TensorSpec& matrix) const override {
    codes_of(checkpoint, matrix);
    scales_of(checkpoint, matrix);
  }
  void read(const Checkpoint& checkpoint, const TensorSpec& matrix, std::uint64_t first,
            std::uint64_t rows, std::byte* codes, std::byte* scales) const override {
    const std::uint64_t k = matrix.shape[1], row_bytes = code_row_bytes(Encoding::int8, k);
    const auto from = codes_of(checkpoint, matrix).data.subspan(first * k, rows * k);
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::memcpy(codes + row * row_bytes, from.data() + row * k, k);
      std::memset(codes + row * row_bytes + k, 0, row_bytes - k);
    }
    checkpoint.file_of(matrix.name).forget(from);

    const std::string name = module_of(matrix) + std::string(kChannelParts[1]);
    const StoredTensor stored = checkpoint.file_of(name).tensor(name);
    convert(stored.dtype, stored.data.data() + first * size_of(stored.dtype), DType::f32, scales,
            rows);
    for (std::uint64_t row = 0; row < rows; ++row) {
      float scale;
      std::memcpy(&scale, scales + row * sizeof(scale), sizeof(scale));
      if (!std::isfinite(scale))
        throw InputError("{}: tensor {} has a value that is not finite, at [{}, 0]",
                         checkpoint.file_of(name).path().string(), name, first + row);
    }
  }

 private:
  static RawTensor codes_of(const Checkpoint& checkpoint, const TensorSpec& matrix) {
    return part_of(checkpoint, matrix, kChannelParts[0], kBytes, matrix.shape);
  }
  static RawTensor scales_of(const Checkpoint& checkpoint, const TensorSpec& matrix) {
    return part_of(checkpoint, matrix, kChannelParts[1], kScaleTypes, {matrix.shape[0], 1});
  }
};

}  // namespace

std::unique_ptr<IQuantisedFormat> make_int8_channel_format() {
  return std::make_unique<Int8ChannelFormat>();
}

}  // namespace sluice
