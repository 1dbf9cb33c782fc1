// How fast a policy would be on machines that are not here, beside the policies that ship with Sluice.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/loader.hpp"

namespace sluice {

struct PredictedSpeed {
  std::string policy, machine;
  double decode_ms = 0;   // per token; 0 where it did not run
  std::string bound{};    // what it waits for most: see harness/bounds.hpp
  std::string problem{};  // why it did not run
};

inline constexpr const char* kSpeedModel = "qwen3-8b";
inline constexpr std::uint32_t kSpeedLayers = 8;  // the gpu_layer_budget

// Decoding kSpeedModel with kSpeedLayers layers' slots in virtual time: by machine, then by policy,
// `plugin` last. Policies of Sluice that are not installed are left out.
std::vector<PredictedSpeed> predict_speeds(const std::shared_ptr<const Plugin>& plugin,
                                           const ParamValues& params);

}  // namespace sluice
