// Synthetic weights: the same wherever and however they are made, on disk as in memory.
#include "core/weights/synthetic.hpp"

#include <cmath>
#include <random>

#include "core/float16.hpp"
#include "core/weights/checkpoint.hpp"
#include "core/weights/weight_store.hpp"
#include "core/weights/write_checkpoint.hpp"
#include "models/model_source.hpp"
#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

TensorSpec synthetic_spec(const char* name, std::vector<std::uint64_t> shape) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  return tensor;
}

std::vector<float> floats(const SyntheticWeights& source, const TensorSpec& tensor) {
  std::vector<float> values(tensor.elements());
  source.read(tensor, 0, values.size(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace

TEST_CASE("synthetic weights are uniform with a standard deviation of 0.02") {
  const std::vector<float> values =
      floats(SyntheticWeights("x", 3, DType::f32), synthetic_spec("a.weight", {1000, 1000}));
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0, largest = 0, lagged = 0;
  std::vector<int> eighths(8);
  const double end = 0.02 * std::sqrt(3.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += static_cast<double>(values[i]) * values[i];
    largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
    if (i > 0) lagged += static_cast<double>(values[i]) * values[i - 1];
    ++eighths[std::min(7, static_cast<int>((values[i] / end + 1) * 4))];
  }
  CHECK(std::fabs(sum / n) < 5 * 0.02 / std::sqrt(n));
  CHECK(std::sqrt(squares / n) == Approx(0.02).epsilon(0.005));
  CHECK(largest <= end * 1.000001);
  CHECK(std::fabs(lagged / n) < 5 * 0.02 * 0.02 / std::sqrt(n));
  for (const int count : eighths) CHECK(std::fabs(count - n / 8) < 5 * std::sqrt(n / 8));
}

TEST_CASE("synthetic weights depend on seed name and index alone") {
  const SyntheticWeights source("x", 3, DType::bf16);
  const TensorSpec tensor = synthetic_spec("a.weight", {50, 101});
  std::vector<std::uint16_t> whole(tensor.elements());
  source.read(tensor, 0, whole.size(), reinterpret_cast<std::byte*>(whole.data()));
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t first = random() % whole.size();
    const std::uint64_t n = random() % (whole.size() - first + 1);
    std::vector<std::uint16_t> part(n + 1, 0x1234);
    source.read(tensor, first, n, reinterpret_cast<std::byte*>(part.data()));
    if (!std::equal(part.begin(), part.end() - 1, whole.begin() + static_cast<long>(first))) {
      FAIL("elements " << first << " to " << first + n);
    }
    CHECK(part[n] == 0x1234);
  }
  const std::vector<float> values = floats(SyntheticWeights("x", 3, DType::f32), tensor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (whole[i] != f32_to_bf16(values[i])) FAIL("bf16 is not f32 rounded, at " << i);
  }
  CHECK(floats(SyntheticWeights("y", 3, DType::f32), tensor) == values);
  CHECK(floats(SyntheticWeights("x", 4, DType::f32), tensor) != values);
  CHECK(floats(SyntheticWeights("x", 3, DType::f32), synthetic_spec("b.weight", {50, 101})) !=
        values);
  // For good, since records of runs name a seed: worked out apart from this code.
  const double first[] = {-0.020809981915977455,  -0.03392002208667198,  0.031871214905734475,
                          0.02200776237831089,    0.016265182085817325,  -0.022377773995095267,
                          -0.0003726545569042675, -0.0008938423485462643};
  for (int i = 0; i < 8; ++i) CHECK(values[i] == Approx(first[i]).epsilon(1e-6));
}

TEST_CASE("synthetic norms are ones and biases are not") {
  const SyntheticWeights source("x", 3, DType::f32);
  CHECK(floats(source, synthetic_spec("model.norm.weight", {3000})) ==
        std::vector<float>(3000, 1.0f));
  CHECK(floats(source, synthetic_spec("self_attn.q_norm.weight", {16}))[15] == 1.0f);
  CHECK(std::fabs(floats(source, synthetic_spec("q_proj.bias", {16}))[7]) < 0.04f);
}

TEST_CASE("synthetic weights written to disk load as those in memory") {
  for (const char* name : {"tiny-dense", "tiny-moe"}) {
    const ModelSource model = open_model(SyntheticLocation{name, 11}, shapes());
    for (const std::uint64_t shard_bytes : {1ull << 40, 300'000ull, 1ull}) {
      INFO(name << " in shards of " << shard_bytes);
      const ScratchDir dir;
      write_checkpoint(model.plan, *model.tensors, dir.path(), shard_bytes);
      const bool single = std::filesystem::exists(dir.path() / "model.safetensors");
      CHECK(single == (shard_bytes == 1ull << 40));
      for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
        CHECK(entry.path().extension() != ".part");
        // A shard of at most so many bytes of data, or of one tensor.
        if (shard_bytes == 300'000) CHECK(entry.file_size() < 330'000);
      }
      std::filesystem::copy_file(shapes() / (std::string(name) + ".json"),
                                 dir.path() / "config.json");
      const ModelSource loaded = open_model(CheckpointLocation{dir.path()}, shapes());
      MemoryDevice device;
      const WeightStore::Options options{DType::bf16, 0, {}};
      const WeightStore a(device, model.plan, *model.tensors, options);
      const WeightStore b(device, loaded.plan, *loaded.tensors, options);
      REQUIRE(a.view().units.size() == b.view().units.size());
      for (const UnitInfo& unit : a.view().units) {
        REQUIRE(unit.bytes == b.view().units[unit.id].bytes);
        if (std::memcmp(a.slab(unit.id, Encoding::native), b.slab(unit.id, Encoding::native),
                        unit.size(Encoding::native)) != 0) {
          FAIL("unit " << unit.id << " differs");
        }
      }
    }
  }
}

TEST_CASE("a checkpoint is written whole or not at all and never over another") {
  const ModelSource model = open_model(SyntheticLocation{"tiny-dense", 1}, shapes());
  const ScratchDir dir;
  write_checkpoint(model.plan, *model.tensors, dir.path(), 1ull << 40);
  CHECK(contains(
      input_error([&] { write_checkpoint(model.plan, *model.tensors, dir.path(), 1ull << 40); }),
      "has model.safetensors already"));
  CHECK_THROWS_AS(write_checkpoint(model.plan, *model.tensors, dir.path() / "none", 1ull << 40),
                  Error);
  class Failing final : public ITensorSource {
   public:
    DType stored_type(const TensorSpec&) const override { return DType::f32; }
    bool has(const std::string&) const override { return true; }
    void read(const TensorSpec& tensor, std::uint64_t, std::uint64_t, std::byte*) const override {
      if (tensor.name == "lm_head.weight") throw Error("gone");
    }
    std::string describe() const override { return "failing"; }
  };
  const ScratchDir empty;
  CHECK_THROWS_WITH(write_checkpoint(model.plan, Failing(), empty.path(), 1ull << 40), "gone");
  CHECK(std::filesystem::is_empty(empty.path()));
}
