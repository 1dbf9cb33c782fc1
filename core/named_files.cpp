#include "core/named_files.hpp"

#include <algorithm>

#include "core/files.hpp"

namespace sluice {

namespace fs = std::filesystem;

bool is_path(std::string_view given, std::string_view extension) {
  return given.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos ||
         given.ends_with(extension);
}

std::vector<std::string> names_in(const fs::path& directory, std::string_view extension) {
  std::vector<std::string> names;
  if (!directory_exists(directory)) return names;
  for (const fs::path& entry : entries_of(directory))
    if (entry.extension() == extension) names.push_back(entry.stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

fs::path executable_directory() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/exe", failed).parent_path();
}

}  // namespace sluice
