// Packing: every byte where it belongs, cast as it should be, the model in memory once.
#include "core/weights/weight_store.hpp"

#include <atomic>
#include <thread>

#include "core/device/device_decorator.hpp"
#include "core/float16.hpp"
#include "core/weights/checkpoint.hpp"
#include "core/weights/synthetic.hpp"
#include "core/weights/write_checkpoint.hpp"
#include "models/model_plan.hpp"
#include "models/model_source.hpp"
#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

WeightStore pack(IDevice& device, const ModelPlan& plan, const ITensorSource& source, DType dtype,
                 unsigned threads = 0) {
  return WeightStore(device, plan, source, {dtype, threads, {}});
}

ModelSource open_fixture(const std::string& name) {
  return open_model(CheckpointLocation{fixture(name)}, "");
}

const std::byte* data_of(const WeightStore& store, UnitId unit, std::size_t tensor) {
  return store.slab(unit, Encoding::native) +
         store.layout().place(unit, tensor, Encoding::native).data;
}

// Stored bytes of an element type, element by element as double.
double element(DType type, const void* data, std::size_t i) {
  if (type == DType::f32) {
    float x;
    std::memcpy(&x, static_cast<const char*>(data) + i * 4, 4);
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + i * 2, 2);
  return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

DType stored_type(const std::string& name) {
  return name == "qwen3-tiny-f32"   ? DType::f32
         : name == "qwen3-tiny-f16" ? DType::f16
                                    : DType::bf16;
}

std::string all_slabs(const WeightStore& store) {
  std::string all;
  for (const UnitInfo& unit : store.view().units) {
    all.append(reinterpret_cast<const char*>(store.slab(unit.id, Encoding::native)),
               unit.size(Encoding::native));
  }
  return all;
}

ModelPlan tiny_plan(std::vector<std::uint64_t> shape) {
  ModelPlan plan;
  UnitSpec unit;
  for (const char* name : {"q", "k"}) {
    TensorSpec tensor;
    tensor.name = name;
    tensor.shape = shape;
    unit.tensors.push_back(tensor);
  }
  unit.tensors[1].joined = true;
  plan.units.push_back(unit);
  plan.layers = 1;
  return plan;
}

}  // namespace

TEST_CASE("slabs hold the bytes of the files in the plan's order without gaps") {
  for (const std::string& name : fixture_names()) {
    INFO(name);
    const ModelSource model = open_fixture(name);
    const auto expected = read_tensors(fixture(name));
    MemoryDevice device;
    // In its own type, and in f32, which keeps what is stored.
    for (const DType dtype : {stored_type(name), DType::f32}) {
      const WeightStore store = pack(device, model.plan, *model.tensors, dtype);
      for (const UnitInfo& unit : store.view().units) {
        std::string together;
        for (const TensorSpec& tensor : model.plan.units[unit.id].tensors) {
          together += expected.at(tensor.name);
        }
        if (unit.kind == UnitKind::embedding) together = expected.at("model.embed_tokens.weight");
        const std::byte* slab = store.slab(unit.id, Encoding::native);
        CHECK(reinterpret_cast<std::uintptr_t>(slab) % 256 == 0);
        REQUIRE(unit.size(Encoding::native) == together.size());
        if (std::memcmp(slab, together.data(), together.size()) != 0) {
          FAIL("unit " << unit.id << " differs");
        }
        for (std::size_t t = 0; t < store.spec(unit.id).tensors.size(); ++t) {
          CHECK(store.spec(unit.id).tensors[t].dtype == stored_type(name));
          CHECK(store.layout().place(unit.id, t, Encoding::native).data % 16 == 0);
        }
      }
    }
  }
}

TEST_CASE("tensors of another type are cast to the nearest value while packing") {
  for (const std::string name : {"qwen3-tiny", "qwen3-tiny-f16", "qwen3-tiny-f32"}) {
    const ModelSource model = open_fixture(name);
    const auto stored = read_tensors(fixture(name));
    MemoryDevice device;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      INFO(name << " as " << name_of(dtype));
      const WeightStore store = pack(device, model.plan, *model.tensors, dtype);
      for (const UnitInfo& unit : store.view().units) {
        for (std::size_t t = 0; t < store.spec(unit.id).tensors.size(); ++t) {
          const TensorSpec& tensor = store.spec(unit.id).tensors[t];
          REQUIRE(tensor.dtype == dtype);
          const std::byte* packed = data_of(store, unit.id, t);
          for (std::size_t i = 0; i < tensor.elements(); ++i) {
            const double x = element(stored_type(name), stored.at(tensor.name).data(), i);
            const double got = element(dtype, packed, i);
            // Half a unit in the last place of the result, or of a subnormal f16.
            const double place = std::ldexp(1.0, std::ilogb(x == 0 ? 1 : x));
            const double bound =
                dtype == DType::bf16 ? place * 0x1p-8 : std::max(place * 0x1p-11, 0x1p-25);
            if (!(std::fabs(got - x) <= bound)) {
              FAIL(tensor.name << "[" << i << "]: " << x << " became " << got);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("packing does not depend on the number of threads") {
  const ModelSource model =
      open_model(SyntheticLocation{"tiny-moe", 5}, data_dir() / ".." / ".." / "configs/models");
  MemoryDevice device;
  const std::string one = all_slabs(pack(device, model.plan, *model.tensors, DType::bf16, 1));
  for (const unsigned threads : {2u, 3u, 16u}) {
    CHECK((all_slabs(pack(device, model.plan, *model.tensors, DType::bf16, threads)) == one));
  }
}

TEST_CASE("tensors larger than a piece are packed whole") {
  const ModelPlan plan = tiny_plan({3, 700'001});  // 2.1 million elements, an odd number
  MemoryDevice device;
  const SyntheticWeights source("x", 1, DType::f32);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::uint64_t last = 0, total = 0;
    const WeightStore store(device, plan, source, {dtype, 2, [&](const WeightStore::Progress& p) {
                                                     CHECK(p.done_bytes >= last);
                                                     last = p.done_bytes;
                                                     total = p.total_bytes;
                                                   }});
    CHECK(total == store.view().units[0].size(Encoding::native));
    CHECK(last == total);
    for (std::size_t t = 0; t < store.spec(0).tensors.size(); ++t) {
      const TensorSpec& tensor = store.spec(0).tensors[t];
      std::vector<float> all(tensor.elements());
      source.read(tensor, 0, all.size(), reinterpret_cast<std::byte*>(all.data()));
      const std::byte* packed = data_of(store, 0, t);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const double expected = dtype == DType::f32 ? all[i] : bf16_to_f32(f32_to_bf16(all[i]));
        if (element(dtype, packed, i) != expected) FAIL(tensor.name << " at " << i);
      }
    }
  }
}

TEST_CASE("joined tensors follow without a gap and others are aligned") {
  ModelPlan plan = tiny_plan({3, 3});  // 18 bytes each
  TensorSpec norm;
  norm.name = "norm";
  norm.shape = {3};
  plan.units[0].tensors.push_back(norm);
  plan.units.push_back(plan.units[0]);
  MemoryDevice device;
  const WeightStore store = pack(device, plan, SyntheticWeights("x", 1, DType::bf16), DType::bf16);
  CHECK(store.layout().place(0, 1, Encoding::native).data == 18);
  CHECK(store.layout().place(0, 2, Encoding::native).data == 48);
  CHECK(store.view().units[0].size(Encoding::native) == 54);
  CHECK(store.slab(1, Encoding::native) - store.slab(0, Encoding::native) == 256);
  CHECK(store.pinned_bytes() == 256 + 54);
}

TEST_CASE("joined tensors of two types are refused unless they are cast") {
  const ScratchDir dir;
  spit(dir.path() / "model.safetensors",
       safetensors_file(R"({"q":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                        R"("k":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}})",
                        std::string(12, '\0')));
  const Checkpoint checkpoint(dir.path());
  MemoryDevice device;
  const std::string message = input_error([&] {
    pack(device, tiny_plan({2, 1}), checkpoint, DType::f32);
  });
  CHECK(contains(message, "tensor q is f32 and k is bf16"));
  CHECK(pack(device, tiny_plan({2, 1}), checkpoint, DType::bf16).pinned_bytes() == 8);
}

TEST_CASE("a slab that is not there is an error") {
  MemoryDevice device;
  const WeightStore store =
      pack(device, tiny_plan({2, 2}), SyntheticWeights("x", 1, DType::bf16), DType::bf16);
  CHECK_THROWS_AS(store.slab(0, Encoding::int8), Error);
  CHECK_THROWS_AS(store.slab(1, Encoding::native), Error);
}

TEST_CASE("a source that fails while packing ends it with its error") {
  class Failing final : public ITensorSource {
   public:
    DType stored_type(const TensorSpec&) const override { return DType::bf16; }
    bool has(const std::string&) const override { return true; }
    void read(const TensorSpec& tensor, std::uint64_t, std::uint64_t, std::byte*) const override {
      if (tensor.name == "k") throw Error("disk gone");
    }
    std::string describe() const override { return "failing"; }
  };
  MemoryDevice device;
  CHECK_THROWS_WITH(pack(device, tiny_plan({1 << 12, 1 << 12}), Failing(), DType::bf16, 3),
                    "disk gone");
}

TEST_CASE("nothing is read for a device that does not execute") {
  class Unreadable final : public ITensorSource {
   public:
    DType stored_type(const TensorSpec&) const override { return DType::bf16; }
    bool has(const std::string&) const override { return true; }
    void read(const TensorSpec&, std::uint64_t, std::uint64_t, std::byte*) const override {
      throw Error("was read");
    }
    std::string describe() const override { return "unreadable"; }
  };
  MemoryDevice device(false);
  const WeightStore store = pack(device, tiny_plan({1 << 20, 1 << 20}), Unreadable(), DType::bf16);
  CHECK(store.pinned_bytes() == 1ull << 42);
  CHECK(store.slab(0, Encoding::native) != nullptr);
}

TEST_CASE("pages of the files leave memory while packing") {
  // Bytes of files that the process has in memory.
  const auto mapped_kib = [] {
    std::ifstream status("/proc/self/status");
    std::uint64_t sum = 0, n = 0;
    for (std::string word; status >> word;) {
      if ((word == "RssFile:" || word == "RssShmem:") && status >> n) sum += n;
    }
    return sum;
  };
  const ScratchDir dir;
  const ModelPlan plan = tiny_plan({4096, 3072});  // 48 MiB as bf16
  write_checkpoint(plan, SyntheticWeights("x", 1, DType::bf16), dir.path(), 1ull << 40);
  const Checkpoint checkpoint(dir.path());
  MemoryDevice device;
  const std::uint64_t before = mapped_kib();
  std::uint64_t most = 0;
  const WeightStore store(device, plan, checkpoint, {DType::bf16, 2, [&](const auto&) {
                                                       most = std::max(most, mapped_kib());
                                                     }});
  CHECK(most < before + 20 * 1024);
}

namespace {

// Pins so many bytes and no more.
class StingyDevice final : public DeviceDecorator<IDevice> {
 public:
  StingyDevice(IDevice& below, std::uint64_t bytes) : DeviceDecorator(below), left_(bytes) {}
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override {
    if (bytes > left_) throw PinningError("{} bytes are too many to pin", bytes);
    left_ -= bytes;
    return below_.allocate_pinned(bytes, what);
  }

 private:
  std::uint64_t left_;
};

}  // namespace

TEST_CASE("slabs that cannot be pinned lie in ordinary memory, with the same bytes") {
  for (const char* name : {"qwen3-tiny", "qwen3-tiny-tied-sharded"}) {
    const ModelSource model = open_fixture(name);
    MemoryDevice device;
    const WeightStore whole = pack(device, model.plan, *model.tensors, DType::bf16);
    CHECK(whole.unpinned_bytes() == 0);
    std::uint64_t all = 0;
    for (const UnitInfo& unit : whole.view().units)
      if (!whole.spec(unit.id).shares) all += unit.size(Encoding::native);

    const UnitId embedding = 0;
    REQUIRE(whole.view().units[embedding].kind == UnitKind::embedding);
    const UnitId first = whole.spec(embedding).shares.value_or(embedding);
    const std::uint64_t needed = whole.view().units[first].size(Encoding::native);
    for (const std::uint64_t allowed : {needed, needed + 40000, all - 1}) {
      for (const bool by_option : {true, false}) {
        CAPTURE(name, allowed, by_option);
        StingyDevice stingy(device, allowed);
        WeightStore::Options options;
        if (by_option) options.pinned_limit = allowed;
        IDevice& on = by_option ? static_cast<IDevice&>(device) : stingy;
        const WeightStore store(on, model.plan, *model.tensors, options);
        CHECK(all_slabs(store) == all_slabs(whole));
        CHECK(store.is_pinned(embedding, Encoding::native));
        CHECK(store.is_pinned(first, Encoding::native));
        CHECK(store.pinned_bytes() <= allowed);
        CHECK(store.unpinned_bytes() > 0);
        CHECK(store.pinned_bytes() + store.unpinned_bytes() == all);
        std::uint64_t unpinned = 0;
        for (const UnitInfo& unit : store.view().units) {
          CHECK(reinterpret_cast<std::uintptr_t>(store.slab(unit.id, Encoding::native)) % 256 == 0);
          if (!store.is_pinned(unit.id, Encoding::native)) unpinned += unit.size(Encoding::native);
        }
        CHECK(unpinned == store.unpinned_bytes());
      }
    }
    WeightStore::Options options;
    options.pinned_limit = needed - 1;
    CHECK_THROWS_AS(WeightStore(device, model.plan, *model.tensors, options), InputError);
    StingyDevice stingy(device, needed - 1);
    CHECK_THROWS_AS(WeightStore(stingy, model.plan, *model.tensors, {}), PinningError);
  }
}
