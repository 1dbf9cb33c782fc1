// One safetensors file: what it gives, and every way in which it may be broken.
#include "core/weights/safetensors.hpp"

#include <sys/stat.h>

#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

std::string refused_file(const std::string& content) {
  const ScratchDir dir;
  const auto path = dir.path() / "model.safetensors";
  spit(path, content);
  const std::string message = input_error([&] { SafetensorsFile file(path); });
  CHECK(contains(message, path.string()));
  return message;
}

std::string refused(const std::string& header, std::size_t data_bytes) {
  return refused_file(safetensors_file(header, std::string(data_bytes, 'x')));
}

constexpr const char* kTwo = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]}})";

}  // namespace

TEST_CASE("a safetensors file gives shapes, types and bytes") {
  const ScratchDir dir;
  const auto path = dir.path() / "x.safetensors";
  std::string data(20, '\0');
  for (int i = 0; i < 20; ++i) data[i] = static_cast<char>(i);
  spit(path, safetensors_file(std::string(kTwo) + "   ", data));
  const SafetensorsFile file(path);
  CHECK(file.header().tensors.size() == 2);
  const StoredTensor b = file.tensor("b");
  CHECK(b.dtype == DType::bf16);
  CHECK(b.shape == std::vector<std::uint64_t>{2, 3});
  REQUIRE(b.data.size() == 12);
  CHECK(std::memcmp(b.data.data(), data.data() + 8, 12) == 0);
  file.forget(b.data);
  CHECK(std::memcmp(b.data.data(), data.data() + 8, 12) == 0);
  CHECK(contains(input_error([&] { file.tensor("c"); }), "no tensor c"));
}

TEST_CASE("a safetensors file may be empty or hold scalars and other types") {
  const ScratchDir dir;
  const auto path = dir.path() / "x.safetensors";
  spit(path, safetensors_file("{}", ""));
  CHECK(SafetensorsFile(path).header().tensors.empty());
  spit(path, safetensors_file(R"({"__metadata__":{"format":"pt","x":"y"},)"
                              R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},)"
                              R"("i":{"dtype":"I64","shape":[1],"data_offsets":[4,12]},)"
                              R"("n":{"dtype":"NEW9","shape":[7],"data_offsets":[12,13]},)"
                              R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                              std::string(13, 'x')));
  const SafetensorsFile file(path);
  CHECK(file.tensor("s").data.size() == 4);
  CHECK(file.tensor("e").data.empty());
  CHECK(contains(input_error([&] { file.tensor("i"); }), "I64, F32, BF16 or F16 is needed"));
  CHECK(contains(input_error([&] { file.tensor("n"); }), "NEW9"));
  const RawTensor i = file.raw("i");
  CHECK(i.type == "I64");
  CHECK(i.shape == std::vector<std::uint64_t>{1});
  CHECK(i.data.data() == file.data().data() + 4);
  CHECK(i.data.size() == 8);
  CHECK(file.raw("s").type == "F32");
  CHECK(file.raw("s").data.data() == file.data().data());
  CHECK(contains(input_error([&] { file.raw("t"); }), "no tensor t"));
  CHECK(file.header().metadata == std::map<std::string, std::string>{{"format", "pt"}, {"x", "y"}});
}

TEST_CASE("a moved safetensors file stays readable") {
  const ScratchDir dir;
  const auto path = dir.path() / "x.safetensors";
  spit(path, safetensors_file(kTwo, std::string(20, 'x')));
  std::vector<SafetensorsFile> files;
  for (int i = 0; i < 4; ++i) files.emplace_back(path);
  for (const SafetensorsFile& file : files) CHECK(file.tensor("a").data[0] == std::byte{'x'});
}

TEST_CASE("safetensors files that are cut or give a wrong header length are refused") {
  CHECK(contains(refused_file(""), "0 bytes"));
  CHECK(contains(refused_file("1234567"), "7 bytes"));
  const auto with_length = [](std::uint64_t length, std::string rest) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    return file + rest;
  };
  CHECK(contains(refused_file(with_length(3, "{}")), "given as 3 bytes, the file has 2"));
  CHECK(contains(refused_file(with_length(~0ull, "{}")), "given as 18446744073709551615 bytes"));
  CHECK(contains(refused_file(with_length(~0ull - 7, "{}")), "the file has 2"));
  CHECK(contains(refused_file(with_length(0, "")), "not JSON"));
  const std::string whole = safetensors_file(kTwo, std::string(20, 'x'));
  for (std::size_t size = 0; size < whole.size(); ++size) refused_file(whole.substr(0, size));
  CHECK(contains(refused_file(whole + "y"), "take 20 bytes of data, the file has 21"));
}

TEST_CASE("a safetensors header longer than the format allows is refused unread") {
  const ScratchDir dir;
  const auto path = dir.path() / "x.safetensors";
  const std::uint64_t length = 100'000'001;
  std::string start(8, '\0');
  std::memcpy(start.data(), &length, 8);
  spit(path, start);
  std::filesystem::resize_file(path, 8 + length);  // sparse
  CHECK(contains(input_error([&] { SafetensorsFile file(path); }), "the format allows 100000000"));
}

TEST_CASE("safetensors paths that are no file are refused") {
  const ScratchDir dir;
  CHECK(contains(input_error([&] { SafetensorsFile file(dir.path() / "none"); }), "no such file"));
  CHECK(contains(input_error([&] { SafetensorsFile file(dir.path()); }), "not a file"));
  REQUIRE(::mkfifo((dir.path() / "pipe").c_str(), 0600) == 0);
  CHECK(contains(input_error([&] { SafetensorsFile file(dir.path() / "pipe"); }),
                 "pipe: not a file, but a pipe"));
}

TEST_CASE("safetensors headers that are not what the format says are refused") {
  const auto tensor = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  CHECK(contains(refused("nonsense", 0), "not JSON"));
  CHECK(contains(refused("{} {}", 0), "the header:1:4: not JSON"));
  CHECK(contains(refused(std::string("{}\0", 3), 0), "the header:1:3: not JSON: a zero byte"));
  CHECK(contains(refused(std::string("{}\0{}", 5), 0), "a zero byte"));
  CHECK(contains(refused("{\"a\":\"\xff\xfe\"}", 0), "not JSON"));
  CHECK(contains(refused("[]", 0), "an array"));
  CHECK(contains(refused("7", 0), "a number"));
  CHECK(contains(refused("null", 0), "null"));
  CHECK(contains(refused("\"x\"", 0), "a string"));
  CHECK(contains(refused(R"({"a":5})", 0), "a number"));
  CHECK(contains(refused(R"({"a":[]})", 0), "an array"));
  CHECK(contains(refused(R"({"__metadata__":{"a":{}}})", 0), "an object"));
  CHECK(contains(refused(R"({"__metadata__":7})", 0), "a number"));
  CHECK(contains(refused("{\"a\":{}}", 0), "tensor a has no dtype"));
  CHECK(contains(refused(tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4), "has no shape"));
  CHECK(contains(refused(tensor(R"("dtype":"F32","shape":[1])"), 4), "has no data_offsets"));
  CHECK(contains(refused(tensor(R"("shape":[1],"data_offsets":[0,4])"), 4), "has no dtype"));
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  CHECK(contains(refused(tensor(good + R"(,"dtype":"F16")"), 4), "has dtype twice"));
  CHECK(contains(refused(tensor(good + R"(,"extra":1)"), 4), "a key extra"));
  for (const char* wrong : {R"("dtype":7,"shape":[1],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":1,"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[true],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[null],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[{}],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4])",
                            R"("dtype":"F32","shape":[1],"data_offsets":{"0":4})",
                            R"("dtype":["F32"],"shape":[1],"data_offsets":[0,4])"}) {
    CHECK(contains(refused(tensor(wrong), 4), "out of place, at a"));
  }
  CHECK(contains(refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4),
                 "has 1 data_offsets"));
  CHECK(contains(refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4),
                 "has 3 data_offsets"));
}

TEST_CASE("safetensors headers nested very deep are refused") {
  const std::string brackets(2'000'000, '[');
  CHECK(contains(refused(brackets, 0), "an array"));
  CHECK(contains(refused("{\"a\":" + brackets, 0), "an array"));
  std::string objects;
  for (int i = 0; i < 500'000; ++i) objects += "{\"a\":";
  CHECK(contains(refused(objects, 0), "tensor a has a key a"));
}

TEST_CASE("safetensors offsets that do not hold are refused") {
  const auto header = [](const char* first, const char* second) {
    return fmt::format(R"({{"a":{{"dtype":"F32","shape":[2],"data_offsets":{}}},)"
                       R"("b":{{"dtype":"F32","shape":[2],"data_offsets":{}}}}})",
                       first, second);
  };
  CHECK(contains(refused(header("[0,8]", "[8,17]"), 16), "out of the file's 16 bytes"));
  CHECK(contains(refused(header("[0,8]", "[16,8]"), 16), "data offsets 16 to 8"));
  CHECK(contains(refused(header("[0,8]", "[18446744073709551608,18446744073709551615]"), 16),
                 "out of the file's"));
  CHECK(contains(refused(header("[0,8]", "[4,12]"), 16), "4 bytes ahead of the end"));
  CHECK(contains(refused(header("[0,8]", "[0,8]"), 8), "8 bytes ahead of the end"));
  CHECK(contains(refused(header("[0,8]", "[12,20]"), 20), "4 bytes after the end"));
  CHECK(contains(refused(header("[4,12]", "[12,20]"), 20), "4 bytes after the end"));
  CHECK(contains(refused(header("[0,8]", "[8,16]"), 20), "take 16 bytes"));
  CHECK(contains(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         8),
                 "tensor a is there twice"));
}

TEST_CASE("safetensors shapes that do not match their bytes are refused") {
  const auto one = [](const char* dtype, const char* shape, int bytes) {
    return refused(fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}})",
                               dtype, shape, bytes),
                   static_cast<std::size_t>(bytes));
  };
  CHECK(contains(one("F32", "[3]", 8), "tensor a has 8 bytes of data"));
  CHECK(contains(one("BF16", "[3]", 8), "48 bits"));
  CHECK(contains(one("I64", "[3]", 8), "I64 of its shape take 192 bits"));
  CHECK(contains(one("F4", "[3]", 2), "F4 of its shape take 12 bits"));
  // Products that wrap round to the right size.
  CHECK(contains(one("F32", "[4294967296,4294967296]", 0), "more than 2^64"));
  CHECK(contains(one("F32", "[4611686018427387905]", 4), "more than 2^64"));
  CHECK(contains(one("BF16", "[9223372036854775809,2]", 4), "more than 2^64"));
}
