// Lays down a policy of one's own to start from.
#pragma once
#include <filesystem>
#include <string>

#include "core/plugin/search_path.hpp"

namespace sluice {

// Copies the template that Sluice ships to PARENT/NAME under that name, so that it builds as it is.
// Returns its directory. Throws InputError for a name that is no lower-case identifier or that is
// taken (in `path`, or by Sluice), and when the directory is there already.
std::filesystem::path write_new_plugin(const std::string& name, const std::filesystem::path& parent,
                                       const PluginPath& path);

}  // namespace sluice
