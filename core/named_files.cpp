#include "core/named_files.hpp"

#include <algorithm>

namespace sluice {

namespace fs = std::filesystem;

bool is_path(std::string_view given, std::string_view extension) {
  return given.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos ||
         given.ends_with(extension);
}

std::vector<std::string> names_in(const fs::path& directory, std::string_view extension) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, none))
    if (entry.path().extension() == extension) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

fs::path executable_directory() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/exe", failed).parent_path();
}

}  // namespace sluice
