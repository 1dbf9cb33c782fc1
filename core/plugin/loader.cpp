#include "core/plugin/loader.hpp"

#include <boost/dll/shared_library.hpp>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "core/error.hpp"
#include "core/plugin/plugin_file.hpp"

namespace sluice {
namespace {

constexpr const char* kDescriptorSymbol = "sluice_plugin_descriptor";

boost::dll::shared_library open_library(const std::filesystem::path& file) {
  using boost::dll::load_mode::rtld_local;
  using boost::dll::load_mode::rtld_now;
  try {
    // An absolute path: the system would search its own places for a bare name.
    return boost::dll::shared_library(std::filesystem::absolute(file), rtld_now | rtld_local);
  } catch (const std::exception& e) {
    throw InputError("{}: the system cannot load it: {}", file.string(), e.what());
  }
}

class LoadedPlugin final : public Plugin {
 public:
  explicit LoadedPlugin(const std::filesystem::path& file)
      : path_(file), file_(read_plugin_file(file)), library_(open_library(file)) {
    const std::string name = path_.string();
    if (!library_.has(kDescriptorSymbol))
      throw InputError("{}: has a descriptor, but does not export it as {}", name,
                       kDescriptorSymbol);
    descriptor_ = &library_.get<const PluginDescriptor>(kDescriptorSymbol);
    const PluginDescriptor& d = *descriptor_;
    if (!d.identity || std::memcmp(d.identity, &file_.identity, sizeof(PluginIdentity)) != 0)
      throw InputError("{}: its descriptor is not the one found in the file", name);
    if (!d.summary || !d.version || !d.create || !d.destroy || (!d.params && d.param_count != 0))
      throw InputError(
          "{}: its descriptor lacks a summary, a version, a factory, a destroyer or its "
          "table of parameters",
          name);
    check_specs(name, params());
  }

  const PluginDescriptor& descriptor() const override { return *descriptor_; }
  const std::filesystem::path& path() const override { return path_; }
  const std::string& fingerprint() const override { return file_.fingerprint; }

 private:
  std::filesystem::path path_;
  PluginFile file_;
  boost::dll::shared_library library_;
  const PluginDescriptor* descriptor_ = nullptr;
};

// What a policy leans on, as long as it lives.
struct Support {
  std::shared_ptr<const Plugin> plugin;
  CheckedParams params;
};

IOffloadPolicy* create(const Support& support) {
  const std::string name = support.plugin->name();
  std::string what;
  try {
    if (IOffloadPolicy* made = support.plugin->descriptor().create(support.params)) return made;
    what = "returned nothing";
  } catch (const std::invalid_argument& e) {
    throw InputError("policy '{}': {}", name, e.what());
  } catch (const std::exception& e) {
    what = fmt::format("threw: {}", e.what());
  } catch (...) {
    what = "threw something that is not a std::exception";
  }
  throw Error("policy '{}' could not be made: its factory {}", name, what);
}

}  // namespace

std::shared_ptr<const Plugin> load_plugin(const std::filesystem::path& file) {
  return std::make_shared<const LoadedPlugin>(file);
}

PolicyPtr make_policy(const std::shared_ptr<const Plugin>& plugin, const ParamValues& values) {
  const auto support = std::make_shared<const Support>(
      Support{plugin, CheckedParams(plugin->name(), plugin->params(), values)});
  return PolicyPtr(create(*support), [support](IOffloadPolicy* policy) {
    support->plugin->descriptor().destroy(policy);
  });
}

}  // namespace sluice
