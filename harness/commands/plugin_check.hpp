// Tries a policy out on small models, where every mistake shows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/loader.hpp"

namespace sluice {

struct PluginTrial {
  std::string model;         // a shape of configs/models
  std::uint32_t layers = 0;  // the budget
  bool passed = false;
  std::string weights;  // see weights_text()
  std::uint64_t h2d_bytes = 0, hits = 0, misses = 0, wasted = 0, refused = 0;
  std::string problem{};  // empty when passed
};

// Generates with synthetic models, dense ones of different depth and one with experts, under each
// budget from 1 to one beyond their layers, on the cpu device and again on a simulated machine, both under audit and with evicted
// slots filled with NaN. A trial fails where
//   the tokens or first logits are not those of the resident run over the same encodings,
//   the policy throws, or a wish of its was refused,
//   fewer bytes were moved than the slots allow,
//   an access is not ordered after the one it depends on,
//   decisions or counters on the two devices differ: a policy sees no clock, so they cannot.
// Throws InputError for `params`.
std::vector<PluginTrial> try_plugin(const std::shared_ptr<const Plugin>& plugin,
                                    const ParamValues& params);

}  // namespace sluice
