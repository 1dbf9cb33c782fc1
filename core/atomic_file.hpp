// A file that appears under its name when it is whole, and not at all when writing fails.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace sluice {

class AtomicFile {
 public:
  // Written as PATH.part, in whose place nothing is kept. Throws InputError when it cannot be made,
  // or when what PATH names is there and no file.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();  // without finish(): nothing is left of it
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Both throw Error when the disk refuses.
  void write(const void* data, std::uint64_t bytes);
  void finish();

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_, unfinished_;
  int descriptor_ = -1;
  bool finished_ = false;
};

// The whole of it at once.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sluice
