// Checkpoints whose experts lie in two tensors a layer give the matrices of those where they are apart.
#include "core/weights/fused_experts.hpp"

#include <algorithm>

#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

constexpr std::uint64_t kExperts = 3, kWidth = 2, kHidden = 4;
const std::string kPrefix = "model.layers.1.mlp.experts.";

// Element i of a tensor is 100 * `of` + i, as bits of a bf16.
std::string counted(std::uint64_t of, std::uint64_t elements) {
  std::string out;
  for (std::uint64_t i = 0; i < elements; ++i) {
    const auto bits = static_cast<std::uint16_t>(100 * of + i);
    out.append(reinterpret_cast<const char*>(&bits), 2);
  }
  return out;
}

std::unique_ptr<FusedExperts> open(const ScratchDir& dir, const std::string& gate_up_shape,
                                   const std::string& norm_name = "norm") {
  const std::string gate_up = counted(0, kExperts * 2 * kWidth * kHidden);
  const std::string down = counted(1, kExperts * kWidth * kHidden), norm = counted(2, kHidden);
  const std::string header =
      fmt::format(R"({{"{0}gate_up_proj":{{"dtype":"BF16","shape":{1},"data_offsets":[0,{2}]}},)"
                  R"("{0}down_proj":{{"dtype":"BF16","shape":[3,4,2],"data_offsets":[{2},{3}]}},)"
                  R"("{5}":{{"dtype":"BF16","shape":[4],"data_offsets":[{3},{4}]}}}})",
                  kPrefix, gate_up_shape, gate_up.size(), gate_up.size() + down.size(),
                  gate_up.size() + down.size() + norm.size(), norm_name);
  spit(dir.path() / "model.safetensors", safetensors_file(header, gate_up + down + norm));
  auto checkpoint = std::make_unique<Checkpoint>(dir.path());
  CHECK(FusedExperts::are_in(*checkpoint));
  return std::make_unique<FusedExperts>(std::move(checkpoint));
}

TensorSpec expert_spec(const std::string& name, std::vector<std::uint64_t> shape) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  return tensor;
}

std::uint64_t first_bits(const FusedExperts& experts, const TensorSpec& tensor, std::uint64_t at) {
  std::uint16_t bits = 0;
  CHECK(experts.stored_type(tensor) == DType::bf16);
  experts.read(tensor, at, 1, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

}  // namespace

TEST_CASE("each expert of fused tensors has its own matrices") {
  const ScratchDir dir;
  const auto experts = open(dir, "[3,4,4]");
  for (std::uint64_t e = 0; e < kExperts; ++e) {
    const std::string at = kPrefix + std::to_string(e);
    const TensorSpec gate = expert_spec(at + ".gate_proj.weight", {kWidth, kHidden});
    const TensorSpec up = expert_spec(at + ".up_proj.weight", {kWidth, kHidden});
    const TensorSpec down = expert_spec(at + ".down_proj.weight", {kHidden, kWidth});
    CHECK(experts->has(gate.name));
    CHECK(first_bits(*experts, gate, 0) == e * 16);
    CHECK(first_bits(*experts, up, 0) == e * 16 + 8);
    CHECK(first_bits(*experts, up, 5) == e * 16 + 13);
    CHECK(first_bits(*experts, down, 7) == 100 + e * 8 + 7);
  }
  CHECK(first_bits(*experts, expert_spec("norm", {4}), 3) == 203);
  std::vector<std::string> names = experts->names();
  CHECK(names.size() == 3 * kExperts + 1);
  CHECK(std::ranges::find(names, kPrefix + "2.up_proj.weight") != names.end());
  CHECK(std::ranges::find(names, kPrefix + "down_proj") == names.end());
}

TEST_CASE("fused experts of another number or shape are refused with the tensor's name") {
  const ScratchDir dir;
  const auto experts = open(dir, "[3,4,4]");
  const auto refused = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    return input_error(
        [&] { experts->stored_type(expert_spec(kPrefix + name, std::move(shape))); });
  };
  CHECK(contains(refused("3.gate_proj.weight", {2, 4}), "has 3 experts"));
  CHECK(contains(refused("2.gate_proj.weight", {3, 4}), "[3, 6, 4] is needed"));
  CHECK(contains(refused("2.down_proj.weight", {4, 3}), "[3, 4, 3] is needed"));
  CHECK(contains(refused("99999999999999999999.up_proj.weight", {2, 4}), "no tensor"));
  CHECK(contains(refused("1.other_proj.weight", {2, 4}), "no tensor"));
  CHECK_FALSE(experts->has(kPrefix + "3.gate_proj.weight"));
  const ScratchDir flat_dir;
  const auto flat = open(flat_dir, "[12,4]");
  CHECK_FALSE(flat->has(kPrefix + "0.gate_proj.weight"));
}

TEST_CASE("an expert that is there by itself as well is refused") {
  const ScratchDir dir;
  const std::string name = kPrefix + "1.down_proj.weight";
  const auto experts = open(dir, "[3,4,4]", name);
  CHECK(contains(input_error([&] { experts->stored_type(expert_spec(name, {4})); }),
                 name + " is there twice, by itself and in " + kPrefix + "down_proj"));
  CHECK(experts->stored_type(expert_spec(kPrefix + "0.down_proj.weight", {4, 2})) == DType::bf16);
}
