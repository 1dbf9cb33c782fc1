#include "harness/paths.hpp"

#include <array>
#include <cstdlib>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/named_files.hpp"

namespace sluice {

namespace fs = std::filesystem;

fs::path configs_directory() {
  if (const char* given = std::getenv("SLUICE_CONFIG_DIR"); given && *given) return given;
  return shipped_directory("configs");
}

fs::path shipped_directory(const std::string& name) {
  std::error_code error;
  const fs::path installed = executable_directory() / SLUICE_INSTALL_DATA_DIR / name;
  if (fs::is_directory(installed, error)) return installed.lexically_normal();
  return fs::path(SLUICE_SOURCE_DIR) / name;
}

fs::path package_directory() {
  std::error_code error;
  const fs::path installed = executable_directory() / SLUICE_INSTALL_PACKAGE_DIR;
  if (fs::is_directory(installed, error)) return installed.lexically_normal();
  return executable_directory() / "package";
}

fs::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  if (!home || !*home) throw InputError("{}: HOME is not set, so ~ means nothing", path);
  return path == "~" ? fs::path(home) : fs::path(home) / path.substr(2);
}

fs::path find_path(const std::string& path, const Origin& place, std::string_view what,
                   std::string_view hint) {
  const std::string shown = place.file.empty() ? std::string(what) : to_string(place);
  if (path.find('\0') != std::string::npos)
    throw InputError("{}: {} has a zero byte in its path", shown, what);
  const fs::path wanted = expand_home(path);
  const fs::path beside = place.line > 0 ? fs::path(place.file).parent_path() : fs::path();
  const std::array<fs::path, 3> bases{beside, fs::path(), configs_directory().parent_path()};
  std::string looked;
  for (const fs::path& base : bases) {
    const fs::path candidate = absolute_path(base / wanted);
    if (path_exists(candidate)) return candidate;
    if (looked.find(candidate.string()) == std::string::npos)
      looked += (looked.empty() ? "" : ", ") + candidate.string();
  }
  throw InputError("{}: {} '{}' does not exist; looked for {}{}", shown, what, path, looked, hint);
}

}  // namespace sluice
