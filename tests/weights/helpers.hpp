// What the tests of weights and configs share: safetensors files written byte by byte, and a device
// that is memory only.
#pragma once
#include <fmt/format.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.hpp"
#include "core/error.hpp"
#include "core/weights/unit_spec.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice::test {

inline std::filesystem::path data_dir() { return SLUICE_TEST_DATA; }
inline std::filesystem::path shapes() { return data_dir() / ".." / ".." / "configs" / "models"; }
inline std::filesystem::path fixture(const std::string& name) { return data_dir() / "hf" / name; }

inline const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names{
      "llama-tiny",      "qwen2-tiny",     "qwen3-tiny",
      "qwen3-tiny-f16",  "qwen3-tiny-f32", "qwen3-tiny-tied-sharded",
      "qwen3-tiny-yarn", "qwen3moe-tiny",  "qwen3moe-tiny-nonorm"};
  return names;
}

inline void spit(const std::filesystem::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  REQUIRE(out);
}

// A safetensors file of `header` and `data`, the length as given or that of the header.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

inline bool contains(std::string_view text, std::string_view part) {
  const bool found = text.find(part) != std::string_view::npos;
  if (!found) UNSCOPED_INFO("\"" << part << "\" is not in \"" << text << "\"");
  return found;
}

// Bytes of each tensor of a checkpoint directory, read by other means than the code under test.
inline std::map<std::string, std::string> read_tensors(const std::filesystem::path& directory) {
  std::map<std::string, std::string> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string file = bytes_of(entry.path());
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const auto header = nlohmann::json::parse(file.substr(8, length));
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      const std::uint64_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      tensors[name] = file.substr(8 + length + begin, end - begin);
    }
  }
  return tensors;
}

// Host memory, filled with a pattern that no weight has, and no streams.
class MemoryDevice final : public IDevice {
 public:
  explicit MemoryDevice(bool executes = true) { info_.executes = executes; }

  const DeviceInfo& info() const override { return info_; }
  StreamId make_stream(Resource, const char*) override { return none<StreamId>(); }
  void enqueue(StreamId, const Op&, const Body&) override { none<int>(); }
  void copy(StreamId, const Op&, void*, const void*, std::uint64_t) override { none<int>(); }
  Event record(StreamId) override { return none<Event>(); }
  void wait(StreamId, Event, WaitFor) override { none<int>(); }
  void sync(Event) override { none<int>(); }
  bool reached(Event) override { return none<bool>(); }
  void host(const Op&) override {}
  std::uint64_t now_ns() override { return none<std::uint64_t>(); }
  std::uint64_t stall_ns(StreamId) override { return none<std::uint64_t>(); }
  void keep_times(StreamId) override { none<int>(); }
  std::vector<OpTimes> take_times(StreamId) override { return none<std::vector<OpTimes>>(); }
  void* allocate(std::uint64_t, std::string_view) override { return none<void*>(); }
  void release(void*) noexcept override {}
  void* allocate_pinned(std::uint64_t bytes, std::string_view) override {
    use_.pinned_bytes += bytes;
    if (!info_.executes) return reinterpret_cast<void*>(std::uintptr_t{1} << 40);
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(memory, 0xa5, bytes);
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    if (info_.executes) std::free(memory);
  }
  MemoryUse memory_use() const override { return use_; }

 private:
  template <typename T>
  static T none() {
    throw Error("this device is memory only");
  }
  DeviceInfo info_;
  MemoryUse use_;
};

}  // namespace sluice::test
