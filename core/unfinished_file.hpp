// A file that others see when it is whole: written as PATH.part, or without a name, and renamed at the
// end. Whoever writes it holds a lock on it, so what a killed process left is told from what another
// one is writing now.
#pragma once
#include <filesystem>

namespace sluice {

class UnfinishedFile {
 public:
  enum class Name {
    part,  // has PATH.part from the beginning
    none,  // has PATH.part for a moment in finish(); as `part` on file systems without such files
  };
  // Takes the place of a PATH.part that nobody writes. Throws InputError when it cannot be made, or
  // when what PATH names is there and no file; Error when another process is writing PATH.part.
  UnfinishedFile(std::filesystem::path path, Name name);
  ~UnfinishedFile();  // without finish(): nothing is left of it
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // For reading and writing.
  int descriptor() const { return descriptor_; }
  // Once, when all is written: under its name, in the place of what was there. Throws Error.
  void finish();

 private:
  enum class Locked { refused, waited_for };
  void make_part();
  void link_part();
  bool remove_part(Locked locked) const;
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, part_;
  int descriptor_ = -1;
  bool has_part_ = false;
};

}  // namespace sluice
