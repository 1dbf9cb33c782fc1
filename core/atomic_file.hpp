// A file that appears under its name when it is whole, and not at all when writing fails.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/unfinished_file.hpp"

namespace sluice {

class AtomicFile {
 public:
  // Written as PATH.part. Throws as UnfinishedFile does. Without finish() nothing is left of it.
  explicit AtomicFile(std::filesystem::path path);

  // Both throw Error when the disk refuses.
  void write(const void* data, std::uint64_t bytes);
  void finish() { file_.finish(); }

 private:
  UnfinishedFile file_;
};

// The whole of it at once.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sluice
