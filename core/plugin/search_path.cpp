#include "core/plugin/search_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/nearest.hpp"
#include "core/plugin/loader.hpp"
#include "core/plugin/plugin_file.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> from_environment() {
  std::vector<fs::path> out;
  const char* value = std::getenv("SLUICE_PLUGIN_PATH");
  std::istringstream in(value ? value : "");
  for (std::string part; std::getline(in, part, ':');)
    if (!part.empty()) out.emplace_back(part);
  return out;
}

std::vector<fs::path> beside_executable() {
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (failed) return {};
  const fs::path directory = executable.parent_path();
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

// The files that NAME may mean: one, or several between which nothing decides.
std::vector<fs::path> PluginPath::candidates(const std::string& name) const {
  for (const Rank& rank : ranks_) {
    std::vector<fs::path> files;
    for (const fs::path& directory : rank.directories) {
      const fs::path file = directory / (name + ".so");
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
  for (const fs::path& directory : directories()) {
    if (!directory_exists(directory)) continue;
    for (const fs::path& entry : entries_of(directory))
      if (entry.extension() == ".so") found.insert(entry.stem().string());
  }
  return {found.begin(), found.end()};
}

fs::path PluginPath::find(const std::string& name) const {
  if (is_reserved_policy(name))
    throw InputError("policy '{}' is a part of Sluice, not a plugin", name);
  if (name.empty() || name.find('/') != std::string::npos || name.ends_with(".so"))
    throw InputError(
        "'{}' is not the name of a policy: a name is a bare word such as ring_prefetch; "
        "a plugin's directory is given by --plugin-dir",
        name);
  const std::vector<fs::path> files = candidates(name);
  if (files.size() == 1) return files.front();
  if (files.size() > 1)
    throw InputError(
        "the policy name '{}' is there twice: {}; give the directory that is meant by "
        "--plugin-dir",
        name, joined(files));
  const std::vector<std::string> known = names();
  throw InputError("no policy '{}'{}; there are: {} (in {})", name, did_you_mean(name, known),
                   known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                   joined(directories()));
}

std::vector<PluginPath::Found> PluginPath::list() const {
  std::vector<Found> out;
  for (const std::string& name : names()) {
    Found found{name, candidates(name).front(), ""};
    try {
      load_plugin(find(name));
    } catch (const InputError& e) {
      found.refused = e.what();
    }
    out.push_back(std::move(found));
  }
  return out;
}

}  // namespace sluice
