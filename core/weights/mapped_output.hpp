// A file of a known size, filled through memory by many threads, that appears under its name when it
// is whole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/unfinished_file.hpp"

namespace sluice {

class MappedOutput {
 public:
  // Takes the space at once, so that a full disk is an Error here and not a signal later. Throws as
  // UnfinishedFile does; where that can be without a name until finish(), whatever ends the process
  // leaves nothing.
  MappedOutput(std::filesystem::path path, std::uint64_t bytes,
               UnfinishedFile::Name name = UnfinishedFile::Name::none);
  ~MappedOutput();
  MappedOutput(const MappedOutput&) = delete;
  MappedOutput& operator=(const MappedOutput&) = delete;

  std::span<std::byte> data() const { return {mapping_, bytes_}; }
  // Once, when all is written: to the disk, and under its name, in the place of what was there.
  // Throws Error.
  void finish();

 private:
  [[noreturn]] void fail(const char* what) const;

  UnfinishedFile file_;
  std::uint64_t bytes_;
  std::byte* mapping_ = nullptr;
};

}  // namespace sluice
