// Checkpoints that others quantised: what comes out of them against the numbers that were packed.
#include "core/weights/quantised_checkpoint.hpp"

#include <bit>
#include <cmath>

#include "core/float16.hpp"
#include "core/weights/encoding.hpp"
#include "tests/weights/encodings.hpp"
#include "tests/weights/quantised_files.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

const std::vector<std::string> kFormats{"gptq", "gptq_v2", "awq", "F32", "BF16", "F16"};

Encoding encoding_of(const std::string& format) {
  return format == "awq" || format.starts_with("gptq") ? Encoding::int4 : Encoding::int8;
}

const TensorSpec& spec_of(const ModelPlan& plan, const std::string& name) {
  for (const UnitSpec& unit : plan.units)
    for (const TensorSpec& tensor : unit.tensors)
      if (tensor.name == name) return tensor;
  FAIL("the plan has no " << name);
  throw Error("unreachable");
}

// Rows of codes and scales from `first` on against the numbers; also that the padding is zeros.
void check_rows(const QuantisedMatrix& m, std::uint64_t first, std::uint64_t rows,
                const std::byte* codes, const std::byte* scales) {
  const Encoding encoding = m.int8 ? Encoding::int8 : Encoding::int4;
  const std::uint64_t code_bytes = code_row_bytes(encoding, m.k);
  bool same = true;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::byte* const line = codes + row * code_bytes;
    for (std::uint64_t i = 0; i < (m.int8 ? code_bytes : 2 * code_bytes); ++i) {
      const std::uint64_t nibble = i % 8 % 2 == 0 ? i % 8 / 2 : 4 + i % 8 / 2;
      const auto byte = std::to_integer<int>(line[m.int8 ? i : i / 8 * 4 + nibble / 2]);
      const int code =
          m.int8 ? std::bit_cast<std::int8_t>(line[i]) : (nibble % 2 == 0 ? byte & 15 : byte >> 4);
      same &= code == (i < m.k ? m.code(first + row, i) : 0);
    }
    for (std::uint64_t g = 0; g < m.groups(); ++g) {
      const std::uint64_t at = (first + row) * m.groups() + g;
      if (m.int8) {
        float scale;
        std::memcpy(&scale, scales + row * 4, 4);
        same &= scale == m.scales[at];
      } else {
        std::uint16_t pair[2];
        std::memcpy(pair, scales + (row * m.groups() + g) * 4, 4);
        same &= f16_to_f32(pair[0]) == m.scales[at];
        same &= f16_to_f32(pair[1]) == static_cast<float>(m.zeros[at]);
      }
    }
  }
  CHECK(same);
}

std::uint16_t bf16_value(const QuantisedMatrix& m, std::uint64_t i) {
  return f32_to_bf16(m.value(i / m.k, i % m.k));
}

std::string refused(const QuantisedModel& model) {
  const ScratchDir directory;
  const std::string message = input_error([&] { open_in(directory, model); });
  CHECK(contains(message, directory.path().string()));
  return message;
}

const std::string kQ = "model.layers.0.self_attn.q_proj.";

}  // namespace

TEST_CASE("quantised matrices of a checkpoint come out as they were packed, in any rows") {
  for (const std::string& format : kFormats) {
    INFO(format);
    const ScratchDir directory;
    const QuantisedModel model = quantised_model(format);
    const ModelSource source = open_in(directory, model);
    const Encoding encoding = encoding_of(format);
    const Encoding other = encoding == Encoding::int4 ? Encoding::int8 : Encoding::int4;
    REQUIRE(model.matrices.size() == 13);
    for (const auto& [name, m] : model.matrices) {
      INFO(name);
      const TensorSpec& spec = spec_of(source.plan, name);
      CHECK(source.tensors->has(name));
      CHECK(source.tensors->stored_type(spec) == DType::bf16);
      CHECK(source.tensors->is_quantised(spec, encoding));
      CHECK_FALSE(source.tensors->is_quantised(spec, other));
      CHECK_FALSE(source.tensors->is_quantised(spec, Encoding::native));
      CHECK(source.tensors->quantised_as(spec) == encoding);
      for (const auto& [first, rows] : {std::pair<std::uint64_t, std::uint64_t>{0, m.n},
                                        {3, 9},
                                        {m.n - 1, 1},
                                        {7, 2},
                                        {8, 8},
                                        {0, 1}}) {
        std::vector<std::byte> codes(rows * code_row_bytes(encoding, m.k), std::byte{0xEE});
        std::vector<std::byte> scales(rows * scale_row_bytes(encoding, m.k), std::byte{0xEE});
        source.tensors->read_quantised(spec, encoding, first, rows, codes.data(), scales.data());
        check_rows(m, first, rows, codes.data(), scales.data());
      }
      for (const auto& [first, n] : {std::pair<std::uint64_t, std::uint64_t>{0, m.n * m.k},
                                     {m.k - 1, 2},
                                     {m.k + 5, 3 * m.k},
                                     {m.n * m.k - 1, 1},
                                     {9, 0}}) {
        std::vector<std::uint16_t> got(n + 1, 0xEEEE), expected;
        source.tensors->read(spec, first, n, reinterpret_cast<std::byte*>(got.data()));
        for (std::uint64_t i = first; i < first + n; ++i) expected.push_back(bf16_value(m, i));
        expected.push_back(0xEEEE);
        CHECK(got == expected);
      }
    }
    for (const auto& [name, values] : model.values) {
      const TensorSpec& spec = spec_of(source.plan, name);
      CHECK_FALSE(source.tensors->quantised_as(spec).has_value());
      std::vector<std::uint16_t> got(values.size());
      source.tensors->read(spec, 0, got.size(), reinterpret_cast<std::byte*>(got.data()));
      CHECK(got == values);
    }
  }
}

TEST_CASE("a store of a quantised checkpoint has its codes, or the values they stand for") {
  for (const std::string& format : kFormats) {
    INFO(format);
    const ScratchDir directory;
    const QuantisedModel model = quantised_model(format);
    const ModelSource source = open_in(directory, model);
    MemoryDevice device;
    WeightStore::Options options;
    options.threads = 3;
    options.encodings = all_in(source.plan, encoding_of(format));
    const WeightStore encoded(device, source.plan, *source.tensors, options);
    options.encodings.clear();
    const WeightStore native(device, source.plan, *source.tensors, options);
    for (const UnitInfo& unit : native.view().units) {
      const std::vector<TensorSpec>& tensors = native.spec(unit.id).tensors;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const auto found = model.matrices.find(tensors[t].name);
        if (found == model.matrices.end()) continue;
        const QuantisedMatrix& m = found->second;
        std::vector<std::uint16_t> got(m.n * m.k), expected;
        std::memcpy(got.data(),
                    native.slab(unit.id, Encoding::native) +
                        native.layout().place(unit.id, t, Encoding::native).data,
                    got.size() * 2);
        for (std::uint64_t i = 0; i < got.size(); ++i) expected.push_back(bf16_value(m, i));
        CHECK(got == expected);
        const Encoding encoding = encoding_of(format);
        const TensorPlace& place = encoded.layout().place(unit.id, t, encoding);
        const std::byte* const slab = encoded.slab(unit.id, encoding);
        check_rows(m, 0, m.n, slab + place.data, slab + place.scales);
      }
    }
  }
}

TEST_CASE("what comes in one encoding is not quantised once more in another") {
  for (const std::string format : {"gptq", "F32"}) {
    const ScratchDir directory;
    const ModelSource source = open_in(directory, quantised_model(format));
    const Encoding own = encoding_of(format);
    const Encoding other = own == Encoding::int4 ? Encoding::int8 : Encoding::int4;
    MemoryDevice device;
    const ModelLayout layout(source.plan, *source.tensors, DType::bf16);
    CHECK(layout.units()[1].size(own) > 0);
    CHECK(layout.units()[1].size(other) == 0);
    WeightStore::Options options;
    for (const UnitSpec& unit : source.plan.units)
      options.encodings.push_back(unit.kind == UnitKind::attention ? other : Encoding::native);
    const std::string message =
        input_error([&] { WeightStore(device, source.plan, *source.tensors, options); });
    CHECK(contains(message, directory.path().string()));
    CHECK(contains(message, fmt::format("model.layers.0.self_attn.q_proj.weight comes quantised as "
                                        "{} and is not quantised once more as {}; ask for {} or "
                                        "native",
                                        name_of(own), name_of(other), name_of(own))));
    // The head was not converted: it may be had in all of them.
    const UnitId head = static_cast<UnitId>(source.plan.units.size() - 1);
    CHECK(layout.units()[head].size(other) > 0);
    options.encodings.assign(source.plan.units.size(), Encoding::native);
    options.encodings[head] = other;
    CHECK(WeightStore(device, source.plan, *source.tensors, options).stores(head, other));
  }
}

TEST_CASE(
    "biases that the model does not have are left out where they are zero, and else refused") {
  QuantisedModel model = quantised_model("gptq");
  const std::string bias = "model.layers.0.mlp.up_proj.bias";
  model.tensors[bias] = {"F16", {168}, std::string(336, '\0')};
  const ScratchDir directory;
  open_in(directory, model);
  model.tensors[bias].bytes[100] = 1;
  CHECK(contains(refused(model), bias + " is not zero"));
  model.tensors.erase(bias);
  model.tensors["model.layers.0.mlp.bias"] = {"F16", {1}, std::string(2, '\0')};
  CHECK(
      contains(refused(model), "holds 1 tensors that the model in its config.json does not have"));
}

TEST_CASE("parts of a quantised matrix that are missing or wrong are refused by name") {
  struct Case {
    std::string format, part;
    FileTensor put;  // no type: taken away
    std::string says;
  };
  const std::vector<Case> cases{
      {"gptq", "qweight", {}, "no tensor " + kQ + "qweight"},
      {"gptq", "qzeros", {}, "no tensor " + kQ + "qzeros"},
      {"gptq", "scales", {}, "no tensor " + kQ + "scales"},
      {"gptq", "g_idx", {}, "no tensor " + kQ + "g_idx"},
      {"gptq",
       "qweight",
       {"I32", {9, 71}, std::string(9 * 71 * 4, 'x')},
       "qweight has the shape [9, 71], [9, 72] is needed for a matrix of [72, 72]"},
      {"gptq",
       "qweight",
       {"I32", {72, 9}, std::string(2592, 'x')},
       "has the shape [72, 9], [9, 72] is needed"},
      {"gptq", "qweight", {"I32", {648}, std::string(2592, 'x')}, "has the shape [648]"},
      {"gptq",
       "qweight",
       {"I64", {9, 72}, std::string(9 * 72 * 8, 'x')},
       "has the type I64, I32 is needed"},
      {"gptq",
       "qzeros",
       {"I32", {3, 9}, std::string(108, 'x')},
       "qzeros has the shape [3, 9], [1, 9] is needed"},
      {"gptq", "qzeros", {"F32", {1, 9}, std::string(36, 'x')}, "has the type F32, I32 is needed"},
      {"gptq",
       "scales",
       {"F16", {3, 72}, std::string(432, 'x')},
       "scales has the shape [3, 72], [1, 72] is needed"},
      {"gptq",
       "scales",
       {"BF16", {1, 72}, std::string(144, 'x')},
       "scales has the type BF16, F16 is needed"},
      {"gptq", "g_idx", {"I32", {71}, std::string(284, '\0')}, "g_idx has the shape [71]"},
      {"gptq",
       "weight",
       {"BF16", {72, 72}, std::string(72 * 144, '\0')},
       kQ + "weight is there twice, as values and quantised"},
      {"awq",
       "qweight",
       {"I32", {16, 256}, std::string(16 * 1024, 'x')},
       "qweight has the shape [16, 256], [128, 32] is needed for a matrix of [256, 128]"},
      {"awq", "qzeros", {}, "no tensor " + kQ + "qzeros"},
      {"awq", "qzeros", {"I32", {4, 32}, std::string(512, 'x')}, "qzeros has the shape [4, 32]"},
      {"awq", "scales", {"F16", {4, 256}, std::string(2048, 'x')}, "scales has the shape [4, 256]"},
      {"awq", "g_idx", {"I32", {128}, std::string(512, '\0')}, "does not have: " + kQ + "g_idx"},
      {"F32", "weight_scale", {}, "no tensor " + kQ + "weight_scale"},
      {"F32",
       "weight_scale",
       {"F32", {72}, std::string(288, '\0')},
       "weight_scale has the shape [72], [72, 1] is needed"},
      {"F32", "weight_scale", {"F32", {1, 1}, std::string(4, '\0')}, "has the shape [1, 1]"},
      {"F32",
       "weight_scale",
       {"F64", {72, 1}, std::string(576, '\0')},
       "has the type F64, F32 or BF16 or F16 is needed"},
      {"F32", "weight", {}, "no tensor " + kQ + "weight"},
      {"F32", "weight", {"I8", {72, 71}, std::string(72 * 71, 'x')}, "has the shape [72, 71]"},
      {"F32",
       "weight",
       {"U8", {72, 72}, std::string(72 * 72, 'x')},
       "weight has the type U8, I8 is needed"},
      {"F32",
       "weight_zero_point",
       {"I8", {72, 1}, std::string(72, 'x')},
       "does not have: " + kQ + "weight_zero_point"},
  };
  for (const Case& one : cases) {
    INFO(one.format << " " << one.part);
    QuantisedModel model = quantised_model(one.format);
    if (one.put.type.empty())
      model.tensors.erase(kQ + one.part);
    else
      model.tensors[kQ + one.part] = one.put;
    CHECK(contains(refused(model), one.says));
  }
  // Neither values nor parts.
  QuantisedModel model = quantised_model("gptq");
  for (const char* part : {"qweight", "qzeros", "scales", "g_idx"}) model.tensors.erase(kQ + part);
  CHECK(contains(refused(model), "no tensor " + kQ + "weight"));
  // Shapes that a format does not have.
  model = quantised_model("gptq");
  model.config["intermediate_size"] = 164;
  CHECK(contains(refused(model), "gate_proj.weight is [164, 72]; in GPTQ both are multiples of 8"));
  model = quantised_model("awq");
  model.config["hidden_size"] = 136;
  CHECK(contains(refused(model), "in AWQ the first is a multiple of 8 and the second of 128"));
}

TEST_CASE("groups out of order are refused when the checkpoint is opened") {
  QuantisedModel model = quantised_model("gptq");
  const std::string name = "model.layers.0.self_attn.q_proj.g_idx";
  for (const std::int32_t wrong : {1, -1, 7}) {
    std::memcpy(model.tensors[name].bytes.data() + 5 * 4, &wrong, 4);
    CHECK(contains(refused(model),
                   fmt::format("tensor {} puts weight 5 into group {}, not 0: groups out of order "
                               "(desc_act, \"act-order\") are not supported",
                               name, wrong)));
  }
}

TEST_CASE("scales that are not finite are refused when they are read, wherever they are") {
  for (const std::string& format : kFormats) {
    QuantisedModel model = quantised_model(format);
    const bool int8 = encoding_of(format) == Encoding::int8;
    const std::string name =
        "model.layers.0.mlp.up_proj." + std::string(int8 ? "weight_scale" : "scales");
    for (const float value : {INFINITY, -INFINITY, NAN}) {
      std::string& bytes = model.tensors[name].bytes;
      const std::string before = bytes;
      const std::uint16_t half = format == "BF16" ? f32_to_bf16(value) : f32_to_f16(value);
      if (format == "F32")
        std::memcpy(bytes.data() + 11 * 4, &value, 4);
      else
        std::memcpy(bytes.data() + 11 * 2, &half, 2);
      const ScratchDir directory;
      const ModelSource source = open_in(directory, model);
      MemoryDevice device;
      const std::string message = input_error(
          [&] { WeightStore(device, source.plan, *source.tensors, WeightStore::Options{}); });
      CHECK(contains(message, (directory.path() / "model.safetensors").string()));
      CHECK(contains(
          message, name + " has a value that is not finite, at " + (int8 ? "[11, 0]" : "[0, 11]")));
      bytes = before;
    }
  }
}

TEST_CASE("a quantised checkpoint that is cut off is refused") {
  const QuantisedModel model = quantised_model("awq");
  const ScratchDir directory;
  directory.write("config.json", model.config.dump());
  const std::string file = file_of(model.tensors);
  for (const std::size_t keep : {file.size() - 1, file.size() / 2, std::size_t{4}}) {
    directory.write("model.safetensors", file.substr(0, keep));
    CHECK(contains(input_error([&] { open_model(CheckpointLocation{directory.path()}, ""); }),
                   "is the file complete?"));
  }
}
