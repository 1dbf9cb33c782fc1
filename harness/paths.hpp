// Where files are looked for.
#pragma once
#include <filesystem>
#include <string>

#include "harness/yaml.hpp"

namespace sluice {

// The directory `configs`: SLUICE_CONFIG_DIR, else the one that Sluice ships.
std::filesystem::path configs_directory();

// A directory that Sluice ships, by its place in the source tree: the one installed beside the
// executable, else the source tree's.
std::filesystem::path shipped_directory(const std::string& name);

// Where CMake finds the package Sluice that this executable belongs to: of its installation, else
// of its build.
std::filesystem::path package_directory();

// `~` and `~/x`, by the environment's HOME.
std::filesystem::path expand_home(const std::string& path);

// An existing file or directory, absolute. A relative path is looked for in the directory of
// `place.file`, in the working directory, and in the one that holds `configs`. Throws InputError
// naming `what` and everywhere it looked, with `hint` behind it.
std::filesystem::path find_path(const std::string& path, const Origin& place, std::string_view what,
                                std::string_view hint = "");

}  // namespace sluice
