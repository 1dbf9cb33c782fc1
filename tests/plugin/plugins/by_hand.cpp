// A plugin whose descriptor is written by hand, so that each part of it can be wrong. The loader
// must notice before the static initialiser below runs.
#include <cstdlib>
#include <fstream>

#include "sluice/helpers.hpp"

#ifndef BY_HAND_ABI
#define BY_HAND_ABI kAbiVersion
#endif
#ifndef BY_HAND_BYTES
#define BY_HAND_BYTES sizeof(PluginDescriptor)
#endif
#ifndef BY_HAND_SIGNATURE
#define BY_HAND_SIGNATURE SLUICE_SIGNATURE
#endif
#ifndef BY_HAND_NAME
#define BY_HAND_NAME TEST_PLUGIN_NAME
#endif
#ifndef BY_HAND_IDENTITY
#define BY_HAND_IDENTITY sluice_plugin_identity
#endif
#ifndef BY_HAND_DEFAULT
#define BY_HAND_DEFAULT 1
#endif
#ifndef BY_HAND_CREATE
#define BY_HAND_CREATE make
#endif
#ifndef BY_HAND_SYMBOL
#define BY_HAND_SYMBOL sluice_plugin_descriptor
#endif

using namespace sluice;

namespace {

// A line each time that the library is loaded.
struct MarkLoaded {
  MarkLoaded() {
    if (const char* file = std::getenv("SLUICE_TEST_MARK"))
      std::ofstream(file, std::ios::app) << TEST_PLUGIN_NAME "\n";
  }
} const mark_loaded;

class ByHand final : public IOffloadPolicy {};

[[maybe_unused]] IOffloadPolicy* make(const Params&) { return new ByHand; }
[[maybe_unused]] IOffloadPolicy* make_nothing(const Params&) { return nullptr; }
[[maybe_unused]] constexpr PluginIdentity kNoIdentity{};

constexpr std::array kParams{
    ParamSpec{"number", ParamType::integer, BY_HAND_DEFAULT, 1, 2, "not used"}};

constexpr PluginIdentity identity() {
  return {detail::padded<16>(SLUICE_DETAIL_MAGIC), BY_HAND_ABI, BY_HAND_BYTES,
          detail::padded<104>(BY_HAND_SIGNATURE), detail::padded<64>(BY_HAND_NAME)};
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const PluginIdentity sluice_plugin_identity;
[[gnu::visibility("default")]] extern const PluginDescriptor BY_HAND_SYMBOL;
#ifdef BY_HAND_SECOND
[[gnu::visibility("default")]] extern const PluginIdentity second_identity;
#endif
}
constexpr PluginIdentity sluice_plugin_identity = identity();
#ifdef BY_HAND_SECOND
constexpr PluginIdentity second_identity = identity();
#endif
const PluginDescriptor BY_HAND_SYMBOL{&BY_HAND_IDENTITY,
                                      "written by hand",
                                      "1.0",
                                      kParams.data(),
                                      kParams.size(),
                                      BY_HAND_CREATE,
                                      [](IOffloadPolicy* policy) { delete policy; }};
