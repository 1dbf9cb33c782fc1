// `sluice predict --routing`: recorded routing through policies and capacities.
#pragma once
#include <string>

#include "harness/commands/options.hpp"

namespace sluice {

// Prints what each policy and budget comes to, of the experiment in `file` (empty: none) and of the
// options, where --policy and --expert-slots may be lists. Expert sizes are the experiment's model's,
// or else what the routing was recorded with.
void predict_routing(const ExperimentOptions& options, const std::string& file,
                     const std::string& routing, bool json);

}  // namespace sluice
