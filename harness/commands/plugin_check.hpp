// Tries a policy out on a small model, where every mistake shows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/loader.hpp"

namespace sluice {

struct PluginTrial {
  std::uint32_t layers = 0;  // the budget
  bool passed = false, lossless = false;
  std::uint64_t h2d_bytes = 0, hits = 0, misses = 0, wasted = 0, refused = 0;
  std::string problem;  // empty when passed
};

// Generates with a synthetic dense model on the cpu device, under each budget from 1 to one beyond
// its layers, evicted slots filled with NaN, and compares the tokens of a lossless policy to those of
// the resident run. A trial fails where they differ, the policy throws, a wish was refused, or fewer
// bytes were moved than the slots allow. Throws InputError for `params`.
std::vector<PluginTrial> try_plugin(const std::shared_ptr<const Plugin>& plugin,
                                    const ParamValues& params);

}  // namespace sluice
