// DIR/results.jsonl: one record a line, each written whole. Survives being killed at any moment.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice {

class ResultsFile {
 public:
  // Locks the file until destroyed, so that two sweeps never mix. A last line without an end was torn
  // by a kill: it is cut off. Directory and file are created where they are missing: at once, or
  // with `create` false when the first record is written. Throws InputError when another process
  // holds the file, or a line is not a record; Error when the disk refuses.
  ResultsFile(const std::filesystem::path& directory, bool create);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // In the order of the file, those of earlier runs first.
  const std::vector<nlohmann::json>& records() const { return records_; }
  const nlohmann::json* find(const std::string& id) const;  // null: none
  bool was_torn() const { return was_torn_; }

  // One write of the whole line, then to disk. On failure the file is as before.
  void append(nlohmann::json record);

 private:
  void open();
  void read_lines();

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t size_ = 0;  // bytes of whole lines
  bool was_torn_ = false;
  std::vector<nlohmann::json> records_;
};

// One line of JSON; text that is not UTF-8 is replaced, never an exception.
std::string to_line(const nlohmann::json& value);

}  // namespace sluice
