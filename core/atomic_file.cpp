#include "core/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {

namespace fs = std::filesystem;

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), unfinished_(path_) {
  unfinished_ += ".part";
  std::error_code error;
  // A device or a pipe must not give way to a file.
  if (const fs::file_status status = fs::status(path_, error);
      fs::exists(status) && !fs::is_regular_file(status))
    throw InputError("{}: is there and not a file; give another name", path_.string());
  // What a killed process has left. Whatever else is there is not written into.
  ::unlink(unfinished_.c_str());
  descriptor_ = ::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw InputError("{}: cannot be written: {}", path_.string(), system_message(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!finished_) ::unlink(unfinished_.c_str());
}

void AtomicFile::write(const void* data, std::uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(descriptor_, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    from += n;
    bytes -= static_cast<std::uint64_t>(n);
  }
}

void AtomicFile::finish() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  if (::rename(unfinished_.c_str(), path_.c_str()) != 0) fail(errno);
  finished_ = true;
}

void AtomicFile::fail(int error) const {
  throw Error("{}: writing failed: {}", path_.string(), system_message(error));
}

void write_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace sluice
