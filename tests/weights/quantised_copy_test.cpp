// Quantised copies beside a checkpoint: the same slabs as without, and nothing wrong ever loaded.
#include "core/weights/quantised_copy.hpp"

#include "core/weights/encoding.hpp"
#include "core/weights/mapped_output.hpp"
#include "models/model_source.hpp"
#include "tests/weights/encodings.hpp"
#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

namespace fs = std::filesystem;

constexpr Encoding kQuantised[] = {Encoding::int8, Encoding::int4};

ModelSource open(const fs::path& directory, std::vector<std::string>* notes = nullptr) {
  return open_model(CheckpointLocation{directory}, "", [notes](const std::string& line) {
    if (!notes) FAIL(line);
    notes->push_back(line);
  });
}

WeightStore store_of(MemoryDevice& device, const ModelPlan& plan, const ITensorSource& source,
                     Encoding encoding) {
  WeightStore::Options options;
  options.threads = 2;
  options.encodings = all_in(plan, encoding);
  return {device, plan, source, options};
}

void write(const fs::path& directory, Encoding encoding) {
  const ModelSource model = open_checkpoint(directory);
  write_quantised_copy(model.plan, *model.tensors, encoding,
                       quantised_copy_path(directory, encoding), "", nullptr);
}

// A fixture in a directory of its own.
class ModelDir {
 public:
  explicit ModelDir(const std::string& name) {
    fs::copy(fixture(name), dir_.path(), fs::copy_options::recursive);
  }
  const fs::path& path() const { return dir_.path(); }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path()), fs::directory_iterator()));
  }

 private:
  ScratchDir dir_;
};

// What of a source may not be read where there is a copy.
class NoMatrices final : public ITensorSource {
 public:
  explicit NoMatrices(std::unique_ptr<ITensorSource> source) : source_(std::move(source)) {}
  DType stored_type(const TensorSpec& t) const override { return source_->stored_type(t); }
  bool has(const std::string& name) const override { return source_->has(name); }
  void read(const TensorSpec& t, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override {
    if (t.is_matrix && t.name != "model.embed_tokens.weight") throw Error("{} is read", t.name);
    source_->read(t, first, n, to);
  }
  std::string describe() const override { return source_->describe(); }

 private:
  std::unique_ptr<ITensorSource> source_;
};

}  // namespace

TEST_CASE("slabs read from a quantised copy are those quantised while loading, to the bit") {
  for (const std::string& name : fixture_names()) {
    const ModelDir dir(name);
    for (const Encoding encoding : kQuantised) {
      INFO(name << " in " << name_of(encoding));
      MemoryDevice device;
      const ModelSource plain = open_checkpoint(dir.path());
      const WeightStore expected = store_of(device, plain.plan, *plain.tensors, encoding);
      write(dir.path(), encoding);
      const ModelSource with_copy = open(dir.path());
      for (const Encoding each : kQuantised)
        for (const TensorSpec& tensor : plain.plan.units[1].tensors)
          CHECK(with_copy.tensors->is_quantised(tensor, each) ==
                (tensor.is_matrix && (each == encoding || encoding == Encoding::int4)));
      QuantisedCopyFile copy(quantised_copy_path(dir.path(), encoding), encoding);
      const QuantisedCopy alone(
          std::make_unique<NoMatrices>(std::move(open_checkpoint(dir.path()).tensors)),
          std::move(copy));
      for (const ITensorSource* source :
           {static_cast<const ITensorSource*>(with_copy.tensors.get()),
            static_cast<const ITensorSource*>(&alone)}) {
        const WeightStore got = store_of(device, plain.plan, *source, encoding);
        for (const UnitInfo& unit : expected.view().units) {
          const Encoding of_unit = unit.kind == UnitKind::embedding ? Encoding::native : encoding;
          REQUIRE(std::memcmp(got.slab(unit.id, of_unit), expected.slab(unit.id, of_unit),
                              unit.size(of_unit)) == 0);
        }
      }
    }
  }
}

TEST_CASE("rows of a copy can be read in any pieces") {
  const ModelDir dir("qwen3-tiny");
  for (const Encoding encoding : kQuantised) {
    write(dir.path(), encoding);
    const ModelSource model = open(dir.path());
    const TensorSpec& tensor = model.plan.units[2].tensors[0];
    const std::uint64_t rows = tensor.shape[0];
    const std::uint64_t code_bytes = code_row_bytes(encoding, tensor.shape[1]);
    const std::uint64_t scale_bytes = scale_row_bytes(encoding, tensor.shape[1]);
    std::vector<std::byte> codes(rows * code_bytes), scales(rows * scale_bytes);
    model.tensors->read_quantised(tensor, encoding, 0, rows, codes.data(), scales.data());
    for (const std::uint64_t first : {0, 1, 15, 16, 17, 33}) {
      for (const std::uint64_t n : {0, 1, 15, 16, 17, 40}) {
        std::vector<std::byte> c(n * code_bytes + 1, std::byte{0xEE});
        std::vector<std::byte> s(n * scale_bytes + 1, std::byte{0xEE});
        model.tensors->read_quantised(tensor, encoding, first, n, c.data(), s.data());
        CHECK(std::memcmp(c.data(), codes.data() + first * code_bytes, n * code_bytes) == 0);
        CHECK(std::memcmp(s.data(), scales.data() + first * scale_bytes, n * scale_bytes) == 0);
        CHECK(c.back() == std::byte{0xEE});
        CHECK(s.back() == std::byte{0xEE});
      }
    }
  }
}

TEST_CASE("a copy of other weights is not used, and said so, until it is made again") {
  const ModelDir dir("qwen2-tiny");
  write(dir.path(), Encoding::int8);
  const TensorSpec matrix = open(dir.path()).plan.units[1].tensors[0];
  CHECK(open(dir.path()).tensors->is_quantised(matrix, Encoding::int8));

  // Every matrix counts, at its first, its last and some other weights.
  const fs::path file = dir.path() / "model.safetensors";
  const std::string before = bytes_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, before.data(), 8);
  const auto header = nlohmann::json::parse(before.substr(8, length));
  const ModelPlan plan = open_checkpoint(dir.path()).plan;
  for (const UnitSpec& unit : plan.units) {
    for (const TensorSpec& tensor : unit.tensors) {
      if (!tensor.is_matrix) continue;
      const std::uint64_t begin = header[tensor.name]["data_offsets"][0];
      const std::uint64_t end = header[tensor.name]["data_offsets"][1];
      for (const std::uint64_t at : {begin, end - 2}) {
        std::string changed = before;
        changed[8 + length + at] = static_cast<char>(changed[8 + length + at] ^ 1);
        spit(file, changed);
        std::vector<std::string> notes;
        CHECK_FALSE(open(dir.path(), &notes).tensors->is_quantised(matrix, Encoding::int8));
        REQUIRE(notes.size() == 1);
      }
    }
  }
  std::vector<std::string> notes;
  open(dir.path(), &notes);
  const fs::path copy = quantised_copy_path(dir.path(), Encoding::int8);
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], copy.string() + ": not used: it was made of other weights"));
  CHECK(contains(
      notes[0], fmt::format("`sluice quantize {} --to int8` makes it again", dir.path().string())));
  write(dir.path(), Encoding::int8);
  CHECK(open(dir.path()).tensors->is_quantised(matrix, Encoding::int8));
  spit(file, before);
  notes.clear();
  open(dir.path(), &notes);
  CHECK(notes.size() == 1);

  // One of another version.
  write(dir.path(), Encoding::int8);
  std::string other = bytes_of(copy);
  const std::string key = R"("sluice_version":")";
  other[other.find(key) + key.size()] = '9';
  spit(copy, other);
  notes.clear();
  CHECK_FALSE(open(dir.path(), &notes).tensors->is_quantised(matrix, Encoding::int8));
  CHECK(notes.size() == 1);
}

TEST_CASE("a damaged copy is refused wherever the damage is") {
  const ModelDir dir("qwen2-tiny");
  for (const Encoding encoding : kQuantised) {
    write(dir.path(), encoding);
    const fs::path path = quantised_copy_path(dir.path(), encoding);
    const std::string whole = bytes_of(path);
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), 8);
    const std::size_t data = 8 + length;
    const auto complaint = [&](const std::string& bytes) {
      spit(path, bytes);
      const std::string message = input_error([&] {
        const ModelSource model = open(dir.path());
        MemoryDevice device;
        store_of(device, model.plan, *model.tensors, encoding);
      });
      CHECK(contains(message, path.string() + ": "));
      CHECK(contains(message, fmt::format("; remove {}, or run `sluice quantize {} --to {}` again",
                                          path.string(), dir.path().string(), name_of(encoding))));
      return message;
    };
    std::size_t in_rows = 0, in_checksums = 0;
    for (std::size_t at = data; at < whole.size(); at += 1009) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 4);
      const std::string message = complaint(bytes);
      in_rows += message.find("do not match their checksum") != std::string::npos;
      in_checksums += message.find("the checksum of its checksums") != std::string::npos;
    }
    CHECK(in_rows > 20);
    CHECK(in_checksums > 0);
    CHECK(in_rows + in_checksums == (whole.size() - data + 1008) / 1009);
    CHECK(contains(complaint(whole.substr(0, whole.size() - 1)), "is the file complete?"));
    CHECK(contains(complaint(whole.substr(0, data / 2)), "complete?"));
    CHECK(contains(complaint(""), "too short"));
    CHECK(contains(complaint(whole + "x"), "the file has"));

    const auto with_header = [&](const auto& change) {
      auto header = nlohmann::ordered_json::parse(whole.substr(8, length));
      change(header);
      return safetensors_file(header.dump(), whole.substr(data));
    };
    CHECK(contains(complaint(with_header([](auto& h) { h.erase("__metadata__"); })),
                   "its metadata have no sluice_version"));
    CHECK(contains(
        complaint(with_header([](auto& h) { h["__metadata__"]["sluice_encoding"] = "int3"; })),
        "is in int3"));
    CHECK(contains(complaint(with_header(
                       [](auto& h) { h["__metadata__"]["sluice_checksum"] = "0000000000000000"; })),
                   "0000000000000000 was written"));
    const std::string name = "model.layers.0.self_attn.q_proj.weight";
    CHECK(contains(complaint(with_header([&](auto& h) {
                     h["other"] = h[name + ".codes"];
                     h.erase(name + ".codes");
                   })),
                   "has no tensor " + name + ".codes"));
    CHECK(contains(complaint(with_header([&](auto& h) {
                     auto& shape = h[name + ".codes"]["shape"];
                     shape = {shape[0], shape[1], 1};
                   })),
                   name + ".codes is U8 ["));
    CHECK(contains(complaint(with_header([&](auto& h) { h[name + ".codes"]["dtype"] = "I8"; })),
                   name + ".codes is I8 ["));
    CHECK(contains(complaint(with_header([&](auto& h) {
                     const std::uint64_t end = whole.size() - data;
                     h["more"] = {{"dtype", "U8"}, {"shape", {0}}, {"data_offsets", {end, end}}};
                   })),
                   "tensors, those of"));
    spit(path, whole);
    open(dir.path());
  }
  // One by the other's name.
  fs::copy_file(quantised_copy_path(dir.path(), Encoding::int8),
                quantised_copy_path(dir.path(), Encoding::int4),
                fs::copy_options::overwrite_existing);
  CHECK(contains(input_error([&] { open(dir.path()); }), "is in int8"));
}

TEST_CASE("a copy that cannot be made leaves nothing and what was there") {
  const ModelDir dir("qwen3-tiny-f32");
  write(dir.path(), Encoding::int8);
  const std::size_t files = dir.files();
  const fs::path copy = quantised_copy_path(dir.path(), Encoding::int8);
  const std::string before = bytes_of(copy);
  ModelSource model = open_checkpoint(dir.path());
  CHECK_THROWS_WITH(write_quantised_copy(model.plan, NoMatrices(std::move(model.tensors)),
                                         Encoding::int8, copy, "", nullptr),
                    Contains("is read"));
  model = open_checkpoint(dir.path());
  CHECK_THROWS_WITH(write_quantised_copy(model.plan, *model.tensors, Encoding::int8, copy, "",
                                         [](std::uint64_t, std::uint64_t) { throw Error("stop"); }),
                    Contains("stop"));
  CHECK(dir.files() == files);
  CHECK(bytes_of(copy) == before);
}

TEST_CASE("an output file has its name when it is whole, on any file system") {
  using Name = UnfinishedFile::Name;
  for (const Name name : {Name::none, Name::part}) {
    const ScratchDir dir;
    const fs::path path = dir.write("file", "before");
    {
      const MappedOutput file(path, 5, name);
      std::memcpy(file.data().data(), "after", 5);
      CHECK(fs::exists(dir.path() / "file.part") == (name == Name::part));
    }
    CHECK(bytes_of(path) == "before");
    CHECK_FALSE(fs::exists(dir.path() / "file.part"));
    MappedOutput file(path, 5, name);
    std::memcpy(file.data().data(), "after", 5);
    file.finish();
    CHECK(bytes_of(path) == "after");
    CHECK_FALSE(fs::exists(dir.path() / "file.part"));
    CHECK_THROWS_WITH(MappedOutput(dir.path() / "none" / "file", 5, name),
                      Contains("No such file or directory"));
    CHECK_THROWS_WITH(MappedOutput(dir.path() / "large", 1ull << 60, name),
                      Contains("no space for its"));
    CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
  }
}
