#include "harness/build_info.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "sluice/plugin.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

// The text after the colon of the first line of `file` that begins with `name`.
std::string field_of(const char* file, std::string_view name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::uint64_t kib_of(const char* file, std::string_view name) {
  const std::string text = field_of(file, name);
  return text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10) * 1024;
}

Json driver_version() {
  std::ifstream stream("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(stream, line)) return nullptr;
  return line;
}

}  // namespace

Json build_info() {
  const std::string_view commit = build_commit();
  return {{"version", SLUICE_VERSION},
          {"commit", commit.empty() ? Json(nullptr) : Json(commit)},
          {"compiler", SLUICE_SIGNATURE},
          {"build_type", SLUICE_BUILD_TYPE}};
}

std::string version_text() {
  const std::string_view commit = build_commit();
  return fmt::format("sluice {}{}, {}, {}", SLUICE_VERSION,
                     commit.empty() ? "" : fmt::format(" ({})", commit), SLUICE_SIGNATURE,
                     SLUICE_BUILD_TYPE);
}

Json machine_info() {
  utsname system{};
  ::uname(&system);
  return {{"name", system.nodename},
          {"cpu", field_of("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", kib_of("/proc/meminfo", "MemTotal")},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"driver", driver_version()}};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void start_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::uint64_t peak_memory_bytes() { return kib_of("/proc/self/status", "VmHWM"); }

}  // namespace sluice
