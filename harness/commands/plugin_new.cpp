#include "harness/commands/plugin_new.hpp"

#include <algorithm>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/files.hpp"
#include "core/plugin/plugin_file.hpp"
#include "harness/paths.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestFile = 1ull << 16;

void check_name(const std::string& name, const PluginPath& path) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_word = [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || !is_lower(name[0]) || !std::all_of(name.begin(), name.end(), is_word))
    throw InputError(
        "'{}' cannot be a policy's name: lower-case letters, digits and _, a letter first", name);
  if (is_reserved_policy(name))
    throw InputError("'{}' is the name of a policy of Sluice's own", name);
  for (const PluginPath::Found& found : path.list())
    if (found.name == name)
      throw InputError("a policy named '{}' is there already: {}", name, found.file.string());
}

// my_policy -> MyPolicy
std::string class_name(const std::string& name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (c != '_') out += upper && c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = c == '_';
  }
  return out;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

fs::path write_new_plugin(const std::string& name, const fs::path& parent, const PluginPath& path) {
  check_name(name, path);
  const fs::path directory = absolute_path(parent / name);
  if (path_exists(directory)) throw InputError("{}: is there already", directory.string());
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw InputError("{}: cannot be made: {}", directory.string(), error.message());
  try {
    for (const char* file : {"CMakeLists.txt", "README.md", "my_policy.cpp"}) {
      std::string text = read_file(shipped_directory("strategies/template") / file, kLargestFile);
      replace_all(
          text, "find_package(Sluice REQUIRED)",
          fmt::format("find_package(Sluice REQUIRED HINTS \"{}\")", package_directory().string()));
      replace_all(text, "my_policy", name);
      replace_all(text, "MyPolicy", class_name(name));
      const bool is_source = std::string_view(file) == "my_policy.cpp";
      write_file(directory / (is_source ? name + ".cpp" : file), text);
    }
  } catch (...) {
    fs::remove_all(directory, error);
    throw;
  }
  return directory;
}

}  // namespace sluice
