#include "core/atomic_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.hpp"
#include "core/files.hpp"

namespace sluice {

AtomicFile::AtomicFile(std::filesystem::path path)
    : file_(std::move(path), UnfinishedFile::Name::part) {}

void AtomicFile::write(const void* data, std::uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(file_.descriptor(), from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("{}: writing failed: {}", file_.path().string(), system_message(errno));
    from += n;
    bytes -= static_cast<std::uint64_t>(n);
  }
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace sluice
