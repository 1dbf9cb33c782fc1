// Checkpoint directories: one file, shards with an index, and how they may be broken.
#include "core/weights/checkpoint.hpp"

#include <algorithm>

#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

TensorSpec spec(std::string name, std::vector<std::uint64_t> shape) {
  TensorSpec tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  return tensor;
}

std::string one_tensor(const std::string& name, const std::string& data) {
  return safetensors_file(
      fmt::format(R"({{"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}})", name,
                  data.size() / 2, data.size()),
      data);
}

// Two shards with `a` = "aaaa" and `b` = "bbbb".
void write_shards(const std::filesystem::path& dir, const std::string& weight_map) {
  spit(dir / "one.safetensors", one_tensor("a", "aaaa"));
  spit(dir / "two.safetensors", one_tensor("b", "bbbb"));
  spit(dir / "model.safetensors.index.json", R"({"weight_map":)" + weight_map + "}");
}

std::string refused_index(const std::string& weight_map) {
  const ScratchDir dir;
  write_shards(dir.path(), weight_map);
  const std::string message = input_error([&] { Checkpoint checkpoint(dir.path()); });
  CHECK(contains(message, dir.path().string()));
  return message;
}

}  // namespace

TEST_CASE("a sharded checkpoint reads like one") {
  const ScratchDir dir;
  write_shards(dir.path(), R"({"a":"one.safetensors","b":"two.safetensors"})");
  const Checkpoint checkpoint(dir.path());
  CHECK(checkpoint.has("a"));
  CHECK(!checkpoint.has("c"));
  std::vector<std::string> names = checkpoint.names();
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"a", "b"});
  CHECK(checkpoint.stored_type(spec("b", {2})) == DType::bf16);
  std::string read(2, ' ');
  checkpoint.read(spec("b", {2}), 1, 1, reinterpret_cast<std::byte*>(read.data()));
  CHECK(read == "bb");
  CHECK_THROWS_AS(checkpoint.read(spec("b", {2}), 1, 2, nullptr), Error);
  CHECK_THROWS_AS(checkpoint.read(spec("b", {2}), ~0ull, 2, nullptr), Error);
}

TEST_CASE("all fixtures' tensors read as they stand in the files") {
  for (const std::string& name : fixture_names()) {
    INFO(name);
    const Checkpoint checkpoint(fixture(name));
    const auto expected = read_tensors(fixture(name));
    REQUIRE(checkpoint.names().size() == expected.size());
    const std::uint64_t size = name == "qwen3-tiny-f32" ? 4 : 2;
    for (const auto& [tensor, bytes] : expected) {
      std::string got(bytes.size(), '\0');
      checkpoint.read(spec(tensor, {}), 0, bytes.size() / size,
                      reinterpret_cast<std::byte*>(got.data()));
      if (got != bytes) FAIL(tensor << " differs");
    }
  }
}

TEST_CASE("a tensor that is missing or has another shape is named") {
  const Checkpoint checkpoint(fixture("qwen3-tiny"));
  const std::string absent =
      input_error([&] { checkpoint.stored_type(spec("model.absent", {1})); });
  CHECK(contains(absent, fixture("qwen3-tiny").string()));
  CHECK(contains(absent, "no tensor model.absent"));
  const std::string shape = input_error([&] {
    checkpoint.stored_type(spec("model.norm.weight", {8, 8}));
  });
  CHECK(contains(shape, "model.safetensors"));
  CHECK(contains(shape, "model.norm.weight has the shape [64], [8, 8] is needed"));
}

TEST_CASE("directories without a whole checkpoint are refused") {
  const ScratchDir dir;
  CHECK(contains(input_error([&] { Checkpoint c(dir.path() / "none"); }), "no such directory"));
  CHECK(contains(input_error([&] { Checkpoint c(dir.path()); }),
                 "has neither model.safetensors nor model.safetensors.index.json"));
  CHECK(contains(refused_index(R"({"a":"one.safetensors","b":"gone-1","c":"gone-2"})"),
                 "2 of 3 shards are missing: gone-1, gone-2"));
  CHECK(
      contains(refused_index(R"({"a":"two.safetensors"})"), "tensor a is not in two.safetensors"));
}

TEST_CASE("an index that points out of its directory is refused") {
  for (const char* shard : {"\"../one.safetensors\"", "\"/etc/passwd\"", "\"x/one.safetensors\"",
                            "\"..\"", "\".\"", "\"\"", "\"one\\u0000.safetensors\"",
                            "\"..\\\\one.safetensors\"", "7", "null", "[\"one.safetensors\"]"}) {
    INFO(shard);
    CHECK(contains(refused_index(fmt::format(R"({{"a":{}}})", shard)), "weight_map.a is"));
  }
}

TEST_CASE("an index that is no index is refused") {
  const ScratchDir dir;
  const auto path = dir.path() / "model.safetensors.index.json";
  const auto refused = [&](std::string_view text) {
    spit(path, text);
    const std::string message = input_error([&] { Checkpoint checkpoint(dir.path()); });
    CHECK(contains(message, path.string()));
    return message;
  };
  CHECK(contains(refused(""), "not JSON"));
  CHECK(contains(refused("{\"weight_map\":"), "not JSON"));
  CHECK(contains(refused("[1]"), "an object is needed"));
  CHECK(contains(refused("{}"), "weight_map is missing"));
  CHECK(contains(refused(R"({"weight_map":[1]})"), "an object is needed"));
  CHECK(contains(refused(std::string(1'000'000, '[')), "nested deeper than 64 levels"));
}

TEST_CASE("a checkpoint's description changes with its content only") {
  const ScratchDir dir;
  const auto path = dir.path() / "model.safetensors";
  spit(path, one_tensor("a", "aaaa"));
  const std::string first = Checkpoint(dir.path()).describe();
  CHECK(contains(first, dir.path().string()));
  CHECK(Checkpoint(dir.path()).describe() == first);
  spit(path, one_tensor("a", "aaab"));
  CHECK(Checkpoint(dir.path()).describe() != first);
  spit(path, one_tensor("b", "aaaa"));
  CHECK(Checkpoint(dir.path()).describe() != first);
}
