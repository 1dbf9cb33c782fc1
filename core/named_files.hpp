// Files that an experiment gives by name: policies, machines, shapes of models. NAME is the file
// NAME + extension in one of the directories of its kind.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A bare word is a name; what has a slash (or a zero byte, which no name has) or ends with the
// extension is a path.
bool is_path(std::string_view given, std::string_view extension);

// The names of the files in `directory`, sorted; none where there is no such directory. Throws
// InputError where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory,
                                  std::string_view extension);

// The directory of the running executable; empty where the system does not say.
std::filesystem::path executable_directory();

}  // namespace sluice
