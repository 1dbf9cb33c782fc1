// Files and directories that others made. Whatever stands in the place of what is expected, nothing
// waits for it and an InputError names it and says why.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice {

// A regular file, open for reading until the end of the scope.
class InputFile {
 public:
  // Throws InputError for what is missing, may not be read, or is no file but a directory, a pipe...
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::uint64_t bytes() const { return bytes_; }  // when it was opened

 private:
  int descriptor_;
  std::uint64_t bytes_ = 0;
};

// The whole file. Throws InputError when it cannot be read or is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Standard input to its end, whatever it is. Throws InputError likewise.
std::string read_standard_input(std::uint64_t max_bytes);

enum class Links { followed, themselves };
// False: nothing of that name is there, or it is no directory. Both throw InputError where that cannot
// be told, as where a directory on the way may not be searched.
bool path_exists(const std::filesystem::path& path, Links links = Links::followed);
bool directory_exists(const std::filesystem::path& path);

// What a directory holds, sorted. Throws InputError when it cannot be listed.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory);

// `path` seen from the working directory, without dots. Throws InputError where there is none.
std::filesystem::path absolute_path(const std::filesystem::path& path);

// The system's words for an errno.
std::string system_message(int error);

}  // namespace sluice
