// load_policy FILE.so: loads a plugin, makes its policy with the defaults and prints its name.
#include <cstdio>
#include <exception>

#include "core/plugin/loader.hpp"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const auto plugin = sluice::load_plugin(argv[1]);
  const sluice::PolicyPtr policy = sluice::make_policy(plugin, {});
  std::printf("%s\n", plugin->name().c_str());
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
