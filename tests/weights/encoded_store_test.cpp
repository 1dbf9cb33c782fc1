// Slabs of quantised weights: what lies where, and that nothing else is stored.
#include <cstring>
#include <vector>

#include "core/device/cpu_device.hpp"
#include "core/weights/convert.hpp"
#include "core/weights/dequantise.hpp"
#include "core/weights/encoding.hpp"
#include "core/weights/synthetic.hpp"
#include "core/weights/weight_store.hpp"
#include "models/model_plan.hpp"
#include "models/model_source.hpp"
#include "tests/weights/encodings.hpp"
#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

WeightStore store_of(IDevice& device, const ModelSource& model, DType dtype,
                     std::vector<EncodingSet> encodings) {
  WeightStore::Options options;
  options.dtype = dtype;
  options.threads = 2;
  options.encodings = std::move(encodings);
  return {device, model.plan, *model.tensors, options};
}

// The values of a tensor as f32.
std::vector<float> values_of(const ITensorSource& source, const TensorSpec& tensor) {
  const DType stored = source.stored_type(tensor);
  std::vector<std::byte> bytes(tensor.elements() * size_of(stored));
  source.read(tensor, 0, tensor.elements(), bytes.data());
  std::vector<float> out(tensor.elements());
  convert(stored, bytes.data(), DType::f32, reinterpret_cast<std::byte*>(out.data()), out.size());
  return out;
}

}  // namespace

TEST_CASE("a quantised slab has the codes and scales of each joined matrix and the rest as it is") {
  for (const std::string& name : fixture_names()) {
    const ModelSource model = open_model(CheckpointLocation{fixture(name)}, "");
    for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
      INFO(name << " in " << name_of(encoding));
      MemoryDevice device;
      const WeightStore store =
          store_of(device, model, model.config.dtype, all_in(model.plan, encoding));
      std::size_t matrices = 0;
      for (const UnitInfo& unit : store.view().units) {
        if (unit.kind == UnitKind::embedding) continue;
        const std::byte* const slab = store.slab(unit.id, encoding);
        std::uint64_t written = 0;
        const std::vector<TensorSpec>& tensors = store.spec(unit.id).tensors;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          const TensorPlace& place = store.layout().place(unit.id, t, encoding);
          const std::vector<float> values = values_of(*model.tensors, tensors[t]);
          const bool is_weight = tensors[t].name.ends_with("_proj.weight") ||
                                 unit.kind == UnitKind::head && tensors[t].shape.size() == 2;
          REQUIRE(place.quantised == is_weight);
          if (!is_weight) {
            std::vector<std::byte> packed(values.size() * size_of(tensors[t].dtype));
            convert(DType::f32, reinterpret_cast<const std::byte*>(values.data()), tensors[t].dtype,
                    packed.data(), values.size());
            CHECK(std::memcmp(slab + place.data, packed.data(), packed.size()) == 0);
            written = std::max(written, place.data + packed.size());
            continue;
          }
          ++matrices;
          const std::uint64_t rows = tensors[t].shape[0], k = tensors[t].shape[1];
          std::vector<std::byte> codes(rows * code_row_bytes(encoding, k));
          std::vector<std::byte> scales(rows * scale_row_bytes(encoding, k));
          REQUIRE(quantise_rows(encoding, values.data(), rows, k, codes.data(), scales.data()));
          CHECK(std::memcmp(slab + place.data, codes.data(), codes.size()) == 0);
          CHECK(std::memcmp(slab + place.scales, scales.data(), scales.size()) == 0);
          CHECK(place.data % 16 == 0);
          if (tensors[t].joined) {  // the rows of one matrix
            const TensorPlace& before = store.layout().place(unit.id, t - 1, encoding);
            const std::uint64_t rows_before = tensors[t - 1].shape[0];
            CHECK(place.data == before.data + rows_before * code_row_bytes(encoding, k));
            CHECK(place.scales == before.scales + rows_before * scale_row_bytes(encoding, k));
          }
          written = std::max({written, place.data + codes.size(), place.scales + scales.size()});
        }
        CHECK(unit.size(encoding) == written);
      }
      CHECK(matrices > 6);
    }
  }
}

TEST_CASE("a dequantised slab is a native one of dequantised matrices") {
  for (const std::string& name : fixture_names()) {
    const ModelSource model = open_model(CheckpointLocation{fixture(name)}, "");
    for (const Encoding encoding : {Encoding::int8, Encoding::int4}) {
      INFO(name << " in " << name_of(encoding));
      const auto device = make_cpu_device();
      const StreamId stream = device->make_stream(Resource::compute, "convert");
      const WeightStore store =
          store_of(*device, model, model.config.dtype, all_in(model.plan, encoding));
      for (const UnitInfo& unit : store.view().units) {
        if (unit.kind == UnitKind::embedding) continue;
        // One byte more than the slab, which must not be touched.
        std::vector<std::byte> native(unit.size(Encoding::native) + 1, std::byte{0x5A});
        enqueue_dequantise(*device, stream, store.layout(), unit.id, encoding,
                           store.slab(unit.id, encoding), native.data());
        device->sync(device->record(stream));
        CHECK(native.back() == std::byte{0x5A});
        const std::vector<TensorSpec>& tensors = store.spec(unit.id).tensors;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          const std::byte* const got =
              native.data() + store.layout().place(unit.id, t, Encoding::native).data;
          const TensorPlace& place = store.layout().place(unit.id, t, encoding);
          const std::byte* const slab = store.slab(unit.id, encoding);
          const std::uint64_t bytes = tensors[t].elements() * size_of(tensors[t].dtype);
          std::vector<std::byte> expected(bytes);
          if (place.quantised)
            dequantise_rows(encoding, slab + place.data, slab + place.scales, tensors[t].shape[0],
                            tensors[t].shape[1], tensors[t].dtype, expected.data());
          else
            std::memcpy(expected.data(), slab + place.data, bytes);
          CHECK(std::memcmp(got, expected.data(), bytes) == 0);
        }
      }
    }
  }
}

TEST_CASE("sizes of Qwen3-8B's units in each encoding are those worked out by hand") {
  const ModelSource model = open_model(SyntheticLocation{"qwen3-8b", 1}, shapes());
  const ModelLayout layout(model.plan, *model.tensors, DType::bf16);
  const auto size = [&](UnitId unit, Encoding encoding) {
    return layout.units()[unit].size(encoding);
  };
  // q, k, v: 4096 + 2 x 1024 rows of 4096; o: 4096 rows of 4096; norms of 4096, 128 and 128 in bf16.
  const std::uint64_t attention = 10240ull * 4096, norms = 2 * (4096 + 128 + 128);
  CHECK(size(1, Encoding::native) == 2 * attention + norms);
  CHECK(size(1, Encoding::int8) == attention + 10240 * 4 + norms);
  CHECK(size(1, Encoding::int4) == attention / 2 + attention / 128 * 4 + norms);
  // gate and up: 24576 rows of 4096; down: 4096 rows of 12288.
  const std::uint64_t mlp = 3ull * 12288 * 4096;
  CHECK(size(2, Encoding::native) == 2 * mlp + 2 * 4096);
  CHECK(size(2, Encoding::int8) == mlp + (24576 + 4096) * 4 + 2 * 4096);
  CHECK(size(2, Encoding::int4) == mlp / 2 + mlp / 128 * 4 + 2 * 4096);
  CHECK(size(0, Encoding::int8) == 0);  // the embedding
  CHECK(size(0, Encoding::int4) == 0);
}

TEST_CASE("only the encodings asked for are stored, and the embedding natively whatever is asked") {
  for (const std::string shape : {"tiny-dense", "tiny-moe"}) {
    const ModelSource model = open_model(SyntheticLocation{shape, 1}, shapes());
    MemoryDevice device;
    const WeightStore store =
        store_of(device, model, DType::bf16, all_in(model.plan, Encoding::int4));
    std::uint64_t expected = 0;
    for (const UnitInfo& unit : store.view().units) {
      const bool embedding = unit.kind == UnitKind::embedding;
      const bool shared =
          unit.kind == UnitKind::head && store.spec(0).shares.has_value();  // with the embedding
      CHECK(store.stores(unit.id, Encoding::native) == (embedding || shared));
      CHECK(store.stores(unit.id, Encoding::int4) == !embedding);
      CHECK_FALSE(store.stores(unit.id, Encoding::int8));
      CHECK_THROWS_WITH(store.slab(unit.id, Encoding::int8),
                        Catch::Contains("no slab encoded as int8"));
      if (embedding ? !store.spec(unit.id).shares.has_value() : shared)
        expected = (expected + 255) / 256 * 256 + unit.size(Encoding::native);
      if (!embedding) expected = (expected + 255) / 256 * 256 + unit.size(Encoding::int4);
    }
    CHECK(store.pinned_bytes() == expected);
  }
}

TEST_CASE("slabs are the same whatever the threads, and where they may not be pinned") {
  const ModelSource model = open_model(SyntheticLocation{"tiny-dense", 3}, shapes());
  MemoryDevice device;
  WeightStore::Options options;
  options.encodings = all_in(model.plan, Encoding::int8);
  options.threads = 1;
  const WeightStore one(device, model.plan, *model.tensors, options);
  options.threads = 5;
  options.pinned_limit = one.pinned_bytes() / 2;
  const WeightStore many(device, model.plan, *model.tensors, options);
  CHECK(many.unpinned_bytes() > 0);
  for (const UnitInfo& unit : one.view().units) {
    const Encoding encoding = unit.kind == UnitKind::embedding ? Encoding::native : Encoding::int8;
    REQUIRE(std::memcmp(one.slab(unit.id, encoding), many.slab(unit.id, encoding),
                        unit.size(encoding)) == 0);
  }
}

TEST_CASE("a value that cannot be quantised is an error with the tensor's name") {
  class Infinite final : public ITensorSource {
   public:
    DType stored_type(const TensorSpec&) const override { return DType::f32; }
    bool has(const std::string&) const override { return true; }
    void read(const TensorSpec& tensor, std::uint64_t, std::uint64_t n,
              std::byte* to) const override {
      const std::vector<float> values(n, tensor.name.ends_with("up_proj.weight") ? INFINITY : 1.0f);
      std::memcpy(to, values.data(), n * sizeof(float));
    }
    std::string describe() const override { return "infinite"; }
  };
  const ModelSource model = open_model(SyntheticLocation{"tiny-dense", 1}, shapes());
  MemoryDevice device;
  WeightStore::Options options;
  options.encodings = all_in(model.plan, Encoding::int8);
  CHECK_THROWS_WITH(WeightStore(device, model.plan, Infinite(), options),
                    Catch::Contains("infinite: model.layers.") &&
                        Catch::Contains("up_proj.weight has values") &&
                        Catch::Contains("cannot be stored as int8"));
}
