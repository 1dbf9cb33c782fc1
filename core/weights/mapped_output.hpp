// A file of a known size, filled through memory by many threads, that appears under its name when it
// is whole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace sluice {

class MappedOutput {
 public:
  // Takes the space at once, so that a full disk is an Error here and not a signal later. The file
  // has no name before finish(), so whatever ends the process leaves nothing. On file systems without
  // such files, unless `unnamed`, and for a moment in finish(), it is `path`.part, which a process
  // that is killed leaves behind and the next one takes the place of.
  MappedOutput(std::filesystem::path path, std::uint64_t bytes, bool unnamed = true);
  ~MappedOutput();
  MappedOutput(const MappedOutput&) = delete;
  MappedOutput& operator=(const MappedOutput&) = delete;

  std::span<std::byte> data() const { return {mapping_, bytes_}; }
  // Once, when all is written: to the disk, and under its name, in the place of what was there.
  // Throws Error.
  void finish();

 private:
  void open(bool unnamed);
  void close() noexcept;
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, unfinished_;
  std::uint64_t bytes_;
  int file_ = -1;
  bool named_ = false;  // unfinished_ is there
  std::byte* mapping_ = nullptr;
};

}  // namespace sluice
