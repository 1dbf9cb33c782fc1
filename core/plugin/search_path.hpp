// Where policies are looked for by name.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/loader.hpp"

namespace sluice {

// The file of the policy NAME is NAME.so. Directories have a rank, and a higher one hides a lower:
// first those given (--plugin-dir), then those of SLUICE_PLUGIN_PATH (colon-separated), then the
// executable's own: its build's and its installation's. Two different files of one name within the
// first rank, or within the second, are an error: nothing says which is meant.
class PluginPath {
 public:
  // Throws InputError for a given directory that is none. Those of the other ranks may be missing.
  explicit PluginPath(const std::vector<std::filesystem::path>& given = {});

  // In order of precedence.
  std::vector<std::filesystem::path> directories() const;

  struct Found {
    std::string name;                      // of the file, without .so
    std::filesystem::path file;            // the first, where nothing says which is meant
    std::shared_ptr<const Plugin> plugin;  // null when it is refused
    std::string refused;                   // why it cannot be used; empty when it can
  };
  // Everything on the path, by name, each loaded once. A file that is refused throws nothing.
  std::vector<Found> list() const;

  // The files that NAME may mean: none, one, or several between which nothing decides. Nothing is
  // loaded; files are read only where a rank holds two of the name, to see whether they are the same.
  std::vector<std::filesystem::path> files_of(const std::string& name) const;

  // The one file of files_of(). Throws InputError for a name that is not there (with the nearest
  // known ones), that is reserved, that is no bare word, and that two directories of a rank hold
  // (with both files).
  std::filesystem::path find(const std::string& name) const;

 private:
  std::vector<std::string> names() const;

  struct Rank {
    std::vector<std::filesystem::path> directories;
    bool first_wins = false;
  };
  std::vector<Rank> ranks_;
};

}  // namespace sluice
