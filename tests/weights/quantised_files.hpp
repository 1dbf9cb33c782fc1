// Checkpoints as quantisers write them, packed nibble by nibble as the formats are defined.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/model_source.hpp"
#include "tests/weights/helpers.hpp"

namespace sluice::test {

struct FileTensor {
  std::string type;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};
using FileTensors = std::map<std::string, FileTensor>;

// The header has no padding, so data begin at any address.
std::string file_of(const FileTensors& tensors);

// A matrix [n, k] as numbers, and what each weight is: scale * (code - zero), group by group of 128;
// of int8 one scale for each row.
struct QuantisedMatrix {
  std::uint64_t n = 0, k = 0;
  bool int8 = false;
  std::vector<int> codes;     // [n, k]
  std::vector<int> zeros;     // [n, groups]
  std::vector<float> scales;  // [n, groups], of int8 [n]
  std::uint64_t groups() const { return int8 ? 1 : (k + 127) / 128; }
  int code(std::uint64_t row, std::uint64_t i) const { return codes[row * k + i]; }
  std::uint64_t group(std::uint64_t row, std::uint64_t i) const {
    return row * groups() + (int8 ? 0 : i / 128);
  }
  float value(std::uint64_t row, std::uint64_t i) const {
    const std::uint64_t g = group(row, i);
    return scales[g] * static_cast<float>(code(row, i) - zeros[g]);
  }
};

template <typename T>
std::string bytes_of_all(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// `quantization_config` of the formats.
nlohmann::json gptq_config();
nlohmann::json awq_config();
nlohmann::json int8_config();

struct QuantisedModel {
  nlohmann::json config;
  FileTensors tensors;
  std::map<std::string, QuantisedMatrix> matrices;           // by the name MODULE.weight
  std::map<std::string, std::vector<std::uint16_t>> values;  // bf16, of all the rest
};

// A small Qwen2 (it has biases) with an untied head, quantised; `gptq`, `gptq_v2`, `awq` or `F32`,
// `BF16`, `F16`, the type of int8 scales.
QuantisedModel quantised_model(const std::string& format);

// Writes it into the directory and opens it.
ModelSource open_in(const ScratchDir& directory, const QuantisedModel& model);

}  // namespace sluice::test
