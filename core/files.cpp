#include "core/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/error.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Up to the limit rather than by size: a file may grow while it is read, and those of /proc have none.
std::string read_all(int descriptor, const std::string& name, std::uint64_t max_bytes) {
  constexpr std::size_t kPiece = 1 << 18;
  std::string text;
  for (std::size_t size = 0;;) {
    text.resize(size + kPiece);
    const ssize_t n = ::read(descriptor, text.data() + size, kPiece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw InputError("{}: reading failed after {} bytes: {}", name, size, system_message(errno));
    size += static_cast<std::size_t>(n);
    if (size > max_bytes)
      throw InputError("{}: larger than {} bytes, the most that is read of it", name, max_bytes);
    if (n == 0) {
      text.resize(size);
      return text;
    }
  }
}

fs::file_status status_of(const fs::path& path, Links links) {
  std::error_code error;
  const fs::file_status status =
      links == Links::followed ? fs::status(path, error) : fs::symlink_status(path, error);
  if (status.type() == fs::file_type::none)
    throw InputError("{}: cannot be looked at: {}", path.string(), error.message());
  return status;
}

}  // namespace

InputFile::InputFile(const fs::path& path)
    // Without waiting: a pipe would hold the process until somebody writes to it.
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (descriptor_ < 0 && errno == ENOENT) throw InputError("{}: no such file", path.string());
  if (descriptor_ < 0)
    throw InputError("{}: cannot be opened: {}", path.string(), system_message(errno));
  struct stat status {};
  const int failed = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (failed == 0 && S_ISREG(status.st_mode)) {
    bytes_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (failed != 0)
    throw InputError("{}: cannot be looked at: {}", path.string(), system_message(failed));
  throw InputError("{}: not a file, but {}", path.string(), kind_of(status.st_mode));
}

InputFile::~InputFile() { ::close(descriptor_); }

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  const InputFile file(path);
  return read_all(file.descriptor(), path.string(), max_bytes);
}

std::string read_standard_input(std::uint64_t max_bytes) {
  return read_all(STDIN_FILENO, "standard input", max_bytes);
}

bool path_exists(const fs::path& path, Links links) { return fs::exists(status_of(path, links)); }

bool directory_exists(const fs::path& path) {
  return fs::is_directory(status_of(path, Links::followed));
}

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error) throw InputError("{}: cannot be listed: {}", directory.string(), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

fs::path absolute_path(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error)
    throw InputError("{}: there is no working directory to look from: {}", path.string(),
                     error.message());
  return absolute.lexically_normal();
}

std::string system_message(int error) { return std::system_category().message(error); }

}  // namespace sluice
