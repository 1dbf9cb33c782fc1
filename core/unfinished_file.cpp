#include "core/unfinished_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0666;

[[noreturn]] void refuse(const fs::path& path) {
  throw InputError("{}: cannot be written: {}", path.string(), system_message(errno));
}

// False: somebody else holds the lock. Where the file system has no locks, nobody does.
bool lock(int descriptor, int how) {
  int failed;
  while ((failed = ::flock(descriptor, LOCK_EX | how)) != 0 && errno == EINTR) {
  }
  return failed == 0 || errno != EWOULDBLOCK;
}

bool is_at(int descriptor, const fs::path& path) {
  struct stat file {
  }, there{};
  return ::fstat(descriptor, &file) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         file.st_dev == there.st_dev && file.st_ino == there.st_ino;
}

}  // namespace

UnfinishedFile::UnfinishedFile(fs::path path, Name name) : path_(std::move(path)), part_(path_) {
  part_ += ".part";
  std::error_code error;
  // A device or a pipe must not give way to a file.
  if (const fs::file_status status = fs::status(path_, error);
      fs::exists(status) && !fs::is_regular_file(status))
    throw InputError("{}: is there and not a file; remove it, or give another name",
                     path_.string());
  if (name == Name::none) {
    const fs::path directory = path_.has_parent_path() ? path_.parent_path() : ".";
    descriptor_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
    if (descriptor_ >= 0) lock(descriptor_, 0);
  }
  if (descriptor_ < 0) make_part();
}

UnfinishedFile::~UnfinishedFile() {
  // While it is locked, so that nobody else's is taken away.
  if (has_part_) ::unlink(part_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

void UnfinishedFile::make_part() {
  for (;;) {
    descriptor_ = ::open(part_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode);
    if (descriptor_ >= 0) {
      lock(descriptor_, 0);
      has_part_ =
          is_at(descriptor_, part_);  // not when it was taken for a left one before the lock
      if (has_part_) return;
      ::close(std::exchange(descriptor_, -1));
    } else if (errno != EEXIST) {
      refuse(path_);
    } else if (!remove_part(Locked::refused)) {
      throw Error("{}: another process is writing it, as {}", path_.string(), part_.string());
    }
  }
}

// False: another process is writing it, which is not waited for. Only who holds the lock of what lies
// there takes it away, or gives it another name.
bool UnfinishedFile::remove_part(Locked locked) const {
  const int there = ::open(part_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (there < 0) {  // gone by now, or a link, or not to be read: nothing of ours
    if (errno != ENOENT && ::unlink(part_.c_str()) != 0 && errno != ENOENT) refuse(path_);
    return true;
  }
  const bool held = lock(there, locked == Locked::refused ? LOCK_NB : 0);
  const bool failed = held && is_at(there, part_) && ::unlink(part_.c_str()) != 0;
  const int error = errno;
  ::close(there);
  errno = error;
  if (failed) refuse(path_);
  return held;
}

// Only a name that is free can be given. Others that have theirs for a moment are waited for.
void UnfinishedFile::link_part() {
  const std::string source = "/proc/self/fd/" + std::to_string(descriptor_);
  while (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno != EEXIST) fail("cannot be given its name");
    remove_part(Locked::waited_for);
  }
  has_part_ = true;
}

void UnfinishedFile::finish() {
  // Some file systems say at a close what they could not write. Another one keeps the lock.
  if (const int other = ::dup(descriptor_); other < 0 || ::close(other) != 0)
    fail("writing failed");
  if (!has_part_) link_part();
  if (std::rename(part_.c_str(), path_.c_str()) != 0) fail("cannot be given its name");
  has_part_ = false;
  ::close(std::exchange(descriptor_, -1));
}

void UnfinishedFile::fail(const char* what) const {
  throw Error("{}: {}: {}", path_.string(), what, system_message(errno));
}

}  // namespace sluice
