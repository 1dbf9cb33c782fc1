#include "core/weights/mapped_output.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {
namespace {

constexpr mode_t kMode = 0666;

}  // namespace

MappedOutput::MappedOutput(std::filesystem::path path, std::uint64_t bytes, bool unnamed)
    : path_(std::move(path)), unfinished_(path_.string() + ".part"), bytes_(bytes) {
  try {
    open(unnamed);
    if (const int error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes)); error != 0)
      throw Error("{}: no space for its {} bytes: {}", path_.string(), bytes,
                  system_message(error));
    void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapping == MAP_FAILED) fail("cannot be mapped");
    mapping_ = static_cast<std::byte*>(mapping);
  } catch (...) {
    close();
    throw;
  }
}

MappedOutput::~MappedOutput() { close(); }

void MappedOutput::open(bool unnamed) {
  const std::filesystem::path directory = path_.has_parent_path() ? path_.parent_path() : ".";
  if (unnamed) file_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (file_ >= 0) return;
  // As AtomicFile: nothing that stands in its place is written into.
  ::unlink(unfinished_.c_str());
  file_ = ::open(unfinished_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode);
  if (file_ < 0) fail("cannot be written");
  named_ = true;
}

void MappedOutput::close() noexcept {
  if (mapping_) ::munmap(mapping_, bytes_);
  if (file_ >= 0) ::close(file_);
  if (named_) ::unlink(unfinished_.c_str());
  mapping_ = nullptr;
  file_ = -1;
  named_ = false;
}

void MappedOutput::finish() {
  if (::msync(mapping_, bytes_, MS_SYNC) != 0 || ::fsync(file_) != 0) fail("writing failed");
  if (!named_) {
    // Only a name that is free can be given; then rename() takes the other's place in one step.
    const std::string descriptor = "/proc/self/fd/" + std::to_string(file_);
    ::unlink(unfinished_.c_str());
    if (::linkat(AT_FDCWD, descriptor.c_str(), AT_FDCWD, unfinished_.c_str(), AT_SYMLINK_FOLLOW) !=
        0)
      fail("cannot be given its name");
    named_ = true;
  }
  if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) fail("cannot be given its name");
  named_ = false;
  close();
}

void MappedOutput::fail(const char* what) const {
  throw Error("{}: {}: {}", path_.string(), what, system_message(errno));
}

}  // namespace sluice
