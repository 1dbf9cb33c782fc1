// Loads a policy's library, refuses what does not fit before running any of its code, and makes
// policies from it.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/plugin/params.hpp"
#include "sluice/plugin.hpp"

namespace sluice {

// A loaded library. It outlives every policy made from it: policies hold a share.
class Plugin {
 public:
  virtual ~Plugin() = default;
  virtual const PluginDescriptor& descriptor() const = 0;
  virtual const std::filesystem::path& path() const = 0;
  // Of the file's bytes, for records.
  virtual const std::string& fingerprint() const = 0;

  std::string name() const { return descriptor().identity->name.data(); }
  std::span<const ParamSpec> params() const {
    return {descriptor().params, descriptor().param_count};
  }
};

// Destroyed on the side that allocated; the library is let go after it.
using PolicyPtr = std::shared_ptr<IOffloadPolicy>;

// Reads the identity from the file without loading it, checks it, loads, and checks the descriptor.
// Throws InputError, with what read_plugin_file() refuses, what the system says when it cannot load
// the file, and what is wrong with the descriptor.
std::shared_ptr<const Plugin> load_plugin(const std::filesystem::path& file);

// Checks `values` against the plugin's parameters and calls its factory. Throws InputError for the
// values, and Error with the policy's name for whatever the factory throws.
PolicyPtr make_policy(const std::shared_ptr<const Plugin>& plugin, const ParamValues& values);

}  // namespace sluice
