#include "harness/commands/plugin_new.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/files.hpp"
#include "core/plugin/plugin_file.hpp"
#include "harness/paths.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestFile = 1ull << 16;
constexpr std::size_t kLongestName = sizeof(PluginIdentity::name) - 1;

// Those of C++20, each between spaces.
constexpr std::string_view kKeywords =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char "
    "char16_t char32_t char8_t class co_await co_return co_yield compl concept const "
    "const_cast consteval constexpr constinit continue decltype default delete do double "
    "dynamic_cast else enum explicit export extern false float for friend goto if inline "
    "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq "
    "private protected public register reinterpret_cast requires return short signed "
    "sizeof static static_assert static_cast struct switch template this thread_local "
    "throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq ";

void check_name(const std::string& name, const PluginPath& path) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_word = [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || !is_lower(name[0]) || !std::all_of(name.begin(), name.end(), is_word))
    throw InputError(
        "'{}' cannot be a policy's name: lower-case letters, digits and _, a letter first", name);
  if (name.size() > kLongestName)
    throw InputError("'{}' cannot be a policy's name: it has {} letters, there may be {}", name,
                     name.size(), kLongestName);
  if (kKeywords.find(" " + name + " ") != std::string_view::npos)
    throw InputError("'{}' cannot be a policy's name: it is a keyword of C++", name);
  if (is_reserved_policy(name))
    throw InputError("'{}' is the name of a policy of Sluice's own", name);
  if (const std::vector<fs::path> files = path.files_of(name); !files.empty())
    throw InputError("a policy named '{}' is there already: {}", name, files.front().string());
}

// keep_some -> KeepSomePolicy, my_policy -> MyPolicy: a name of the SDK's is not hidden (layout).
std::string class_name(const std::string& name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (c != '_') out += upper && c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = c == '_';
  }
  return out.ends_with("Policy") ? out : out + "Policy";
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// As a quoted argument of CMake's.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\\' || c == '"' || c == '$') out += '\\';
    out += c;
  }
  return out + "\"";
}

// What the template's file becomes. The path comes last: it may hold the template's name.
std::string renamed(const char* file, const std::string& name) {
  std::string text = read_file(shipped_directory("strategies/template") / file, kLargestFile);
  replace_all(text, "my_policy", name);
  replace_all(text, "MyPolicy", class_name(name));
  replace_all(
      text, "find_package(Sluice REQUIRED)",
      fmt::format("find_package(Sluice REQUIRED HINTS {})", quoted(package_directory().string())));
  return text;
}

}  // namespace

fs::path write_new_plugin(const std::string& name, const fs::path& parent, const PluginPath& path) {
  check_name(name, path);
  const fs::path directory = absolute_path(parent / name);
  if (path_exists(directory)) throw InputError("{}: is there already", directory.string());
  std::error_code error;
  const std::pair<fs::path, std::string> files[] = {
      {"CMakeLists.txt", renamed("CMakeLists.txt", name)},
      {"README.md", renamed("README.md", name)},
      {name + ".cpp", renamed("my_policy.cpp", name)}};
  fs::create_directories(directory, error);
  if (error) throw InputError("{}: cannot be made: {}", directory.string(), error.message());
  try {
    for (const auto& [file, text] : files) write_file(directory / file, text);
  } catch (...) {
    fs::remove_all(directory, error);
    throw;
  }
  return directory;
}

}  // namespace sluice
