#include "core/plugin/search_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/named_files.hpp"
#include "core/nearest.hpp"
#include "core/plugin/plugin_file.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".so";

std::vector<fs::path> from_environment() {
  std::vector<fs::path> out;
  const char* value = std::getenv("SLUICE_PLUGIN_PATH");
  std::istringstream in(value ? value : "");
  for (std::string part; std::getline(in, part, ':');)
    if (!part.empty()) out.emplace_back(part);
  return out;
}

std::vector<fs::path> beside_executable() {
  const fs::path directory = executable_directory();
  if (directory.empty()) return {};
  return {directory / "strategies", (directory / SLUICE_INSTALL_PLUGIN_DIR).lexically_normal()};
}

// What cannot be read is the same as nothing.
bool same_bytes(const fs::path& a, const fs::path& b) {
  try {
    return read_file(a, kLargestPlugin) == read_file(b, kLargestPlugin);
  } catch (const InputError&) {
    return false;
  }
}

std::string joined(const std::vector<fs::path>& paths) {
  std::string text;
  for (const fs::path& path : paths) text += (text.empty() ? "" : ", ") + path.string();
  return text;
}

// The one of the files that a name may mean.
const fs::path& only(const std::string& name, const std::vector<fs::path>& files) {
  if (files.size() > 1)
    throw InputError(
        "the policy name '{}' is there twice: {}; give the directory that is meant by "
        "--plugin-dir",
        name, joined(files));
  return files.front();
}

}  // namespace

PluginPath::PluginPath(const std::vector<fs::path>& given)
    : ranks_{{given, false}, {from_environment(), false}, {beside_executable(), true}} {
  for (const fs::path& directory : given)
    if (!directory_exists(directory))
      throw InputError("the plugin directory {} is not a directory", directory.string());
}

std::vector<fs::path> PluginPath::directories() const {
  std::vector<fs::path> out;
  for (const Rank& rank : ranks_)
    out.insert(out.end(), rank.directories.begin(), rank.directories.end());
  return out;
}

std::vector<fs::path> PluginPath::files_of(const std::string& name) const {
  for (const Rank& rank : ranks_) {
    std::vector<fs::path> files;
    for (const fs::path& directory : rank.directories) {
      const fs::path file = directory / (name + std::string(kExtension));
      // A link to nothing counts: it is refused when it is loaded, by its name.
      if (!path_exists(file, Links::themselves)) continue;
      if (files.empty() || !(rank.first_wins || same_bytes(files.front(), file)))
        files.push_back(file);
    }
    if (!files.empty()) return files;
  }
  return {};
}

std::vector<std::string> PluginPath::names() const {
  std::set<std::string> found;
  for (const fs::path& directory : directories())
    for (std::string& name : names_in(directory, kExtension)) found.insert(std::move(name));
  return {found.begin(), found.end()};
}

fs::path PluginPath::find(const std::string& name) const {
  if (is_reserved_policy(name))
    throw InputError("policy '{}' is a part of Sluice, not a plugin", name);
  if (name.empty() || is_path(name, kExtension))
    throw InputError(
        "'{}' is not the name of a policy: a name is a bare word such as ring_prefetch; "
        "a plugin's directory is given by --plugin-dir",
        name);
  if (const std::vector<fs::path> files = files_of(name); !files.empty()) return only(name, files);
  const std::vector<std::string> known = names();
  throw InputError("no policy '{}'{}; there are: {} (in {})", name, did_you_mean(name, known),
                   known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                   joined(directories()));
}

std::vector<PluginPath::Found> PluginPath::list() const {
  std::vector<Found> out;
  for (const std::string& name : names()) {
    const std::vector<fs::path> files = files_of(name);
    Found found{name, files.front(), nullptr, ""};
    try {
      found.plugin = load_plugin(only(name, files));
    } catch (const InputError& e) {
      found.refused = e.what();
    }
    out.push_back(std::move(found));
  }
  return out;
}

}  // namespace sluice
