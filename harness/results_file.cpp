#include "harness/results_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"

namespace sluice {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

std::string reason() { return system_message(errno); }

// What the harness reads out of a record of its own.
bool is_record(const Json& record) {
  const auto is = [](const Json& at, const char* key, Json::value_t type) {
    return at.is_object() && at.contains(key) && at[key].type() == type;
  };
  using Type = Json::value_t;
  return is(record, "id", Type::string) && is(record, "valid", Type::boolean) &&
         is(record, "reasons", Type::array) && is(record, "inputs", Type::object) &&
         is(record["inputs"], "policy", Type::object) &&
         is(record["inputs"]["policy"], "plugin", Type::string) &&
         is(record, "context", Type::object) && is(record["context"], "weights", Type::string) &&
         record["context"].contains("model") && is(record, "figures", Type::object) &&
         (record["valid"] == true || !record["reasons"].empty());
}

// Null where the line is no JSON.
Json read_record(std::string_view line) {
  try {
    return parse_json(line, "");
  } catch (const InputError&) {
    return nullptr;
  }
}

// A write that was cut short begins as every record does; a crash can leave zeros in its place.
bool is_torn_record(std::string_view tail) {
  return tail.starts_with(std::string_view("{\"").substr(0, tail.size())) ||
         tail.find_first_not_of('\0') == std::string_view::npos;
}

// Reads all of the file; its length is whatever it is now.
std::string read_all(int file, const fs::path& path) {
  std::string text;
  std::string block(1 << 16, '\0');
  for (;;) {
    const ssize_t n = ::pread(file, block.data(), block.size(), static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("{}: cannot be read: {}", path.string(), reason());
    if (n == 0) return text;
    text.append(block, 0, static_cast<std::size_t>(n));
  }
}

void sync_directory(const fs::path& directory) {
  const int handle = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;  // a file system without such handles keeps its own order
  ::fsync(handle);
  ::close(handle);
}

}  // namespace

std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ResultsFile::ResultsFile(const fs::path& directory, bool create)
    : path_(directory / "results.jsonl") {
  if (create || path_exists(path_)) open();
}

ResultsFile::~ResultsFile() {
  if (file_ >= 0) ::close(file_);
}

void ResultsFile::open() {
  const fs::path directory = path_.parent_path();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error || !directory_exists(directory))
    throw InputError("{}: cannot be made a directory of results{}", directory.string(),
                     error ? ": " + error.message() : "");
  const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw InputError("{}: cannot be opened: {}", path_.string(), reason());
  file_ = file;
  try {
    struct stat status {};
    if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode))
      throw InputError("{}: not a regular file; give another --out", path_.string());
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0)
      throw InputError("{}: another sweep is writing here; wait for it, or give another --out",
                       path_.string());
    sync_directory(directory);
    read_lines();
  } catch (...) {
    ::close(file_);
    file_ = -1;
    throw;
  }
}

void ResultsFile::read_lines() {
  const std::string text = read_all(file_, path_);
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    Json record = read_record(std::string_view(text).substr(begin, end - begin));
    if (!is_record(record))
      throw InputError("{}:{}: not a record of results; give another --out", path_.string(),
                       records_.size() + 1);
    records_.push_back(std::move(record));
  }
  size_ = begin;
  was_torn_ = begin < text.size();
  if (was_torn_ && !is_torn_record(std::string_view(text).substr(begin)))
    throw InputError("{}:{}: not a record of results; give another --out", path_.string(),
                     records_.size() + 1);
  if (was_torn_ && (::ftruncate(file_, static_cast<off_t>(begin)) != 0 || ::fsync(file_) != 0))
    throw Error("{}: the torn last line cannot be cut off: {}", path_.string(), reason());
}

const Json* ResultsFile::find(const std::string& id) const {
  for (const Json& record : records_)
    if (record["id"] == id) return &record;
  return nullptr;
}

void ResultsFile::append(Json record) {
  if (file_ < 0) open();
  const std::string line = to_line(record) + "\n";
  ssize_t written = -1;
  do written = ::write(file_, line.data(), line.size());
  while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(line.size()) || ::fsync(file_) != 0) {
    const std::string why =
        written < 0 || written == static_cast<ssize_t>(line.size()) ? reason() : "the disk is full";
    if (::ftruncate(file_, static_cast<off_t>(size_)) != 0)
      throw Error("{}: cannot be written ({}), nor be put back: {}", path_.string(), why, reason());
    throw Error("{}: cannot be written: {}", path_.string(), why);
  }
  struct stat status {};
  if (::fstat(file_, &status) != 0 || status.st_nlink == 0)
    throw Error("{}: was deleted while it was written", path_.string());
  size_ += line.size();
  records_.push_back(std::move(record));
}

}  // namespace sluice
