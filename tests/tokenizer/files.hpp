// Where the tests of the tokenizer find their data.
#pragma once
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace sluice::test {

inline std::filesystem::path tokenizer_data() {
  return std::filesystem::path(SLUICE_TEST_DATA) / "tokenizer";
}

// The directory of the Qwen3 tokenizer, unpacked when the build was configured.
inline std::filesystem::path qwen3_directory() {
  return std::filesystem::path(SLUICE_TEST_BUILD_DIR) / "tests" / "qwen3-tokenizer";
}

template <typename Json = nlohmann::json>
Json read_data(const std::string& name) {
  std::ifstream in(tokenizer_data() / name);
  return Json::parse(in);
}

inline std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

}  // namespace sluice::test
