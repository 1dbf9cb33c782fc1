// `sluice quantize` as a user runs it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/float16.hpp"
#include "core/weights/quantised_copy.hpp"
#include "models/model_source.hpp"
#include "tests/harness/process.hpp"
#include "tests/weights/quantised_files.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> generate_from(const fs::path& model) {
  return {"generate",         "--model", model.string(), "--prompt-ids", "1,2,3", "--device", "cpu",
          "--max-new-tokens", "2"};
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 2500; ++i) text += fmt::format("The {} of {} men had an owl. ", i, i * i);
  return text;
}

}  // namespace

TEST_CASE("quantize writes copies that are used, noted when stale, and replaced") {
  const ScratchDir dir;
  fs::copy(fixture("qwen3-tiny"), dir.path(), fs::copy_options::recursive);
  const std::string model = dir.path().string();
  for (const std::string to : {"int8", "int4"}) {
    const Finished done = run_sluice({"quantize", model, "--to", to});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(contains(done.err, model + "/sluice-" + to + ".safetensors: "));
    CHECK(fs::exists(dir.path() / ("sluice-" + to + ".safetensors")));
  }
  const Finished fresh = run_sluice({"inspect", model});
  CHECK(fresh.exit_code == 0);
  CHECK(fresh.err.find("sluice-") == std::string::npos);

  // Other weights.
  std::string weights = bytes_of(dir.path() / "model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  weights[weights.size() / 2] = static_cast<char>(weights[weights.size() / 2] ^ 1);
  for (std::size_t i = 1 << 15; i < weights.size(); i += 2) weights[i] ^= 1;
  dir.write("model.safetensors", weights);
  const Finished stale = run_sluice({"inspect", model});
  CHECK(stale.exit_code == 0);
  for (const std::string to : {"int8", "int4"})
    CHECK(contains(stale.err, model + "/sluice-" + to + ".safetensors: not used: "));
  for (const std::string to : {"int8", "int4"})
    CHECK(run_sluice({"quantize", model, "--to", to}).exit_code == 0);
  CHECK(run_sluice({"inspect", model}).err.find("not used") == std::string::npos);

  // A broken one is refused, and is no hindrance to making it again.
  dir.write("sluice-int4.safetensors", "broken");
  const Finished broken = run_sluice({"inspect", model});
  CHECK(broken.exit_code == 2);
  CHECK(contains(broken.err, "or run `sluice quantize " + model + " --to int4` again"));
  CHECK(run_sluice({"quantize", model, "--to", "int4"}).exit_code == 0);
  CHECK(run_sluice({"inspect", model}).exit_code == 0);
}

TEST_CASE("quantize writes elsewhere where it is told so, and refuses what is wrong") {
  const ScratchDir dir;
  const std::string model = fixture("llama-tiny").string();
  CHECK(run_sluice({"quantize", model, "--to", "int8", "--out", dir.path().string()}).exit_code ==
        0);
  CHECK(fs::exists(dir.path() / "sluice-int8.safetensors"));
  const Finished to = run_sluice({"quantize", model, "--to", "int3"});
  CHECK(to.exit_code == 2);
  CHECK(contains(to.err, "--to int3: int8 or int4 is needed"));
  const Finished out = run_sluice({"quantize", model, "--to", "int8", "--out", "/nowhere"});
  CHECK(out.exit_code == 2);
  CHECK(contains(out.err, "--out /nowhere: no such directory"));
  const ScratchDir gptq;
  open_in(gptq, quantised_model("gptq"));
  const Finished twice = run_sluice({"quantize", gptq.path().string(), "--to", "int8"});
  CHECK(twice.exit_code == 2);
  CHECK(contains(twice.err, "its matrices come quantised and load as they are"));
}

TEST_CASE("quantize calibrates int4 with a text; the copy is used and checked as any other") {
  const ScratchDir dir;
  fs::copy(fixture("llama-tiny"), dir.path(), fs::copy_options::recursive);
  const std::string model = dir.path().string();
  const fs::path file = dir.write("text.txt", long_text()),
                 copy = dir.path() / "sluice-int4.safetensors";
  const std::vector<std::string> plain{"quantize", model, "--to", "int4"};
  std::vector<std::string> calibrated = plain;
  calibrated.insert(calibrated.end(), {"--calibrate", file.string()});
  std::vector<std::string> generated = generate_from(dir.path());
  generated.insert(generated.end(), {"--policy", "int4_prefetch", "--gpu-layer-budget", "2"});

  REQUIRE(run_sluice(plain).exit_code == 0);
  const std::string nearest = bytes_of(copy);
  const Finished done = run_sluice(calibrated);
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  const std::string first = bytes_of(copy);
  CHECK(first != nearest);
  CHECK(contains(first, "int4 calibrated with 32 windows of 512 tokens of the text "));
  CHECK_FALSE(nearest.find("calibrat") != std::string::npos);
  REQUIRE(run_sluice(calibrated).exit_code == 0);
  CHECK(bytes_of(copy) == first);
  CHECK(run_sluice({"inspect", model}).err.find("not used") == std::string::npos);
  CHECK(run_sluice(generated).exit_code == 0);

  std::string damaged = first;
  std::uint64_t header = 0;
  std::memcpy(&header, damaged.data(), sizeof(header));
  char& code = damaged[sizeof(header) + header];
  code = static_cast<char>(code ^ 1);
  dir.write("sluice-int4.safetensors", damaged);
  const Finished refused = run_sluice(generated);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "is damaged"));
}

TEST_CASE("quantize says what a text to calibrate with lacks, and leaves the copy that is there") {
  const ScratchDir dir;
  fs::copy(fixture("llama-tiny"), dir.path(), fs::copy_options::recursive);
  const std::string model = dir.path().string();
  REQUIRE(run_sluice({"quantize", model, "--to", "int4"}).exit_code == 0);
  const std::string before = bytes_of(dir.path() / "sluice-int4.safetensors");
  std::string binary;
  for (int i = 0; i < 2000; ++i) binary += static_cast<char>(i * i % 251 ^ i);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "the file is empty"},
      {"Three men had one owl.", "tokens are too few to calibrate with: 4096 are needed"},
      {binary, "tokens are too few to calibrate with: 4096 are needed"}};
  for (const auto& [text, expected] : cases) {
    const Finished done = run_sluice(
        {"quantize", model, "--to", "int4", "--calibrate", dir.write("text.txt", text).string()});
    CHECK(done.exit_code == 2);
    CHECK(contains(done.err, expected));
  }
  const Finished missing =
      run_sluice({"quantize", model, "--to", "int4", "--calibrate", "/nowhere/text"});
  CHECK(missing.exit_code == 2);
  CHECK(contains(missing.err, "/nowhere/text"));
  const Finished int8 = run_sluice(
      {"quantize", model, "--to", "int8", "--calibrate", dir.write("text.txt", binary).string()});
  CHECK(int8.exit_code == 2);
  CHECK(contains(int8.err, "--calibrate is for --to int4"));
  CHECK(bytes_of(dir.path() / "sluice-int4.safetensors") == before);

  const ScratchDir experts;
  fs::copy(fixture("qwen3moe-tiny"), experts.path(), fs::copy_options::recursive);
  fs::copy(dir.path() / "tokenizer.json", experts.path());
  const Finished moe = run_sluice({"quantize", experts.path().string(), "--to", "int4",
                                   "--calibrate", experts.write("text.txt", long_text()).string()});
  CHECK(moe.exit_code == 2);
  CHECK(contains(moe.err, "calibration is for dense models"));
}

TEST_CASE("quantize that is killed leaves no file or a whole one") {
  const ScratchDir dir;
  fs::copy(fixture("qwen3moe-tiny"), dir.path(), fs::copy_options::recursive);
  const int unnamed = ::open(dir.path().c_str(), O_TMPFILE | O_RDWR, 0600);
  if (unnamed < 0) {
    WARN("SKIPPED: no files without a name here");
    return;
  }
  ::close(unnamed);
  const fs::path copy = quantised_copy_path(dir.path(), Encoding::int8),
                 part = copy.string() + ".part";
  const std::vector<std::string> command{"quantize", dir.path().string(), "--to", "int8"};
  const auto files = [&] {
    return std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator());
  };
  const auto before = files();
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(run_sluice(command).exit_code == 0);
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - start;
  constexpr int kKills = 24;
  for (int i = 0; i < kKills; ++i) {
    fs::remove(copy);
    kill_sluice(command, std::chrono::microseconds(static_cast<int>(whole.count() * i / kKills)));
    // For a moment the whole file has another name.
    if (fs::exists(part)) fs::rename(part, copy);
    const bool there = fs::exists(copy);
    CHECK(files() == before + (there ? 1 : 0));
    if (there) open_model(CheckpointLocation{dir.path()}, "");
  }
}

TEST_CASE("a checkpoint that others quantised generates what its values do") {
  for (const std::string format : {"gptq", "gptq_v2", "awq", "BF16"}) {
    INFO(format);
    QuantisedModel model = quantised_model(format);
    const ScratchDir quantised, plain;
    open_in(quantised, model);
    for (const auto& [name, m] : model.matrices) {
      const std::string module = name.substr(0, name.rfind('.') + 1);
      for (const char* part : {"qweight", "qzeros", "scales", "g_idx", "weight_scale"})
        model.tensors.erase(module + part);
      std::vector<std::uint16_t> values;
      for (std::uint64_t i = 0; i < m.n * m.k; ++i)
        values.push_back(f32_to_bf16(m.value(i / m.k, i % m.k)));
      model.tensors[name] = {"BF16", {m.n, m.k}, bytes_of_all(values)};
    }
    model.config.erase("quantization_config");
    open_in(plain, model);
    const Finished got = run_sluice(generate_from(quantised.path()));
    const Finished expected = run_sluice(generate_from(plain.path()));
    INFO(expected.err);
    CHECK(expected.exit_code == 0);
    CHECK(got.exit_code == 0);
    CHECK_FALSE(expected.out.empty());
    CHECK(got.out == expected.out);
  }
}
