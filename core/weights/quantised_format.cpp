#include "core/weights/quantised_format.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/float16.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {

std::unique_ptr<IQuantisedFormat> make_quantised_format(QuantisedFormat format) {
  switch (format) {
    case QuantisedFormat::gptq: return make_gptq_format(1);
    case QuantisedFormat::gptq_v2: return make_gptq_format(0);
    case QuantisedFormat::awq: return make_awq_format();
    case QuantisedFormat::int8_channel: return make_int8_channel_format();
  }
  throw Error("no such quantised format: {}", static_cast<int>(format));
}

std::string module_of(const TensorSpec& matrix) {
  constexpr std::string_view kWeight = "weight";
  if (!matrix.name.ends_with(kWeight))
    throw Error("{} is no module's weight, which alone may be quantised", matrix.name);
  return matrix.name.substr(0, matrix.name.size() - kWeight.size());
}

bool has_any_part(const Checkpoint& checkpoint, const TensorSpec& matrix,
                  std::span<const std::string_view> parts) {
  const std::string module = module_of(matrix);
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return checkpoint.has(module + std::string(part)); });
}

RawTensor part_of(const Checkpoint& checkpoint, const TensorSpec& matrix, std::string_view part,
                  std::span<const std::string_view> types,
                  const std::vector<std::uint64_t>& shape) {
  const std::string name = module_of(matrix) + std::string(part);
  const SafetensorsFile& file = checkpoint.file_of(name);
  RawTensor raw = file.raw(name);
  if (std::ranges::find(types, raw.type) == types.end())
    throw InputError("{}: tensor {} has the type {}, {} is needed", file.path().string(), name,
                     raw.type, fmt::join(types, " or "));
  if (raw.shape != shape)
    throw InputError("{}: tensor {} has the shape [{}], [{}] is needed for a matrix of [{}]",
                     file.path().string(), name, fmt::join(raw.shape, ", "), fmt::join(shape, ", "),
                     fmt::join(matrix.shape, ", "));
  return raw;
}

void forget_if_last(const Checkpoint& checkpoint, const TensorSpec& matrix, std::uint64_t end,
                    std::span<const std::string_view> parts) {
  if (end != matrix.shape[0]) return;
  for (const std::string_view part : parts) {
    const std::string name = module_of(matrix) + std::string(part);
    const SafetensorsFile& file = checkpoint.file_of(name);
    file.forget(file.raw(name).data);
  }
}

std::uint32_t word_at(std::span<const std::byte> words, std::uint64_t i) {
  std::uint32_t word;
  std::memcpy(&word, words.data() + i * sizeof(word), sizeof(word));
  return word;
}

void read_group_scales(const Checkpoint& checkpoint, const TensorSpec& matrix,
                       const GroupParts& parts, std::uint64_t first, std::uint64_t rows,
                       std::byte* to) {
  constexpr std::uint64_t kZerosInWord = 8;
  constexpr std::uint16_t kExponent = 0x7C00;  // all ones: not finite
  const std::uint64_t n = matrix.shape[0], groups = parts.scales.shape[0];
  for (std::uint64_t g = 0; g < groups; ++g) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t column = first + row;
      GroupScale group;
      std::memcpy(&group.scale, parts.scales.data.data() + (g * n + column) * sizeof(group.scale),
                  sizeof(group.scale));
      if ((group.scale & kExponent) == kExponent) {
        const std::string name = module_of(matrix) + "scales";
        throw InputError("{}: tensor {} has a value that is not finite, at [{}, {}]",
                         checkpoint.file_of(name).path().string(), name, g, column);
      }
      const std::uint32_t word = word_at(parts.zeros.data, (g * n + column) / kZerosInWord);
      const std::uint32_t zero = word >> 4 * parts.nibble_of[column % kZerosInWord] & 15u;
      group.zero = f32_to_f16(static_cast<float>(zero + parts.added_to_zeros));
      std::memcpy(to + (row * groups + g) * sizeof(group), &group, sizeof(group));
    }
  }
}

}  // namespace sluice
