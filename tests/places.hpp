// Where tests find their files: what the environment says, for an executable that was built elsewhere,
// else where the build put them.
#pragma once
#include <cstdlib>
#include <filesystem>

namespace sluice::test {

inline std::filesystem::path place(const char* variable, const char* built) {
  const char* given = std::getenv(variable);
  return given && *given ? given : built;
}

inline std::filesystem::path data_directory() {
  return place("SLUICE_TEST_DATA", SLUICE_TEST_DATA);
}
inline std::filesystem::path policy_directory() {
  return place("SLUICE_TEST_PLUGIN_DIR", SLUICE_TEST_PLUGIN_DIR);
}

}  // namespace sluice::test
