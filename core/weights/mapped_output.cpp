#include "core/weights/mapped_output.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {

MappedOutput::MappedOutput(std::filesystem::path path, std::uint64_t bytes,
                           UnfinishedFile::Name name)
    : file_(std::move(path), name), bytes_(bytes) {
  const int file = file_.descriptor();
  if (const int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes)); error != 0)
    throw Error("{}: no space for its {} bytes: {}", file_.path().string(), bytes,
                system_message(error));
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapping == MAP_FAILED) fail("cannot be mapped");
  mapping_ = static_cast<std::byte*>(mapping);
}

MappedOutput::~MappedOutput() { ::munmap(mapping_, bytes_); }

void MappedOutput::finish() {
  if (::msync(mapping_, bytes_, MS_SYNC) != 0 || ::fsync(file_.descriptor()) != 0)
    fail("writing failed");
  file_.finish();
}

void MappedOutput::fail(const char* what) const {
  throw Error("{}: {}: {}", file_.path().string(), what, system_message(errno));
}

}  // namespace sluice
