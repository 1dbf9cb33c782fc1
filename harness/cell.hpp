// Runs one cell: warm-up, repeats, figures, and whether they can be believed.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/engine/counters.hpp"
#include "harness/model_cache.hpp"
#include "harness/prepare.hpp"

namespace sluice {

struct CellResult {
  std::vector<std::string> reasons;  // why it is not valid; empty: it is
  Json figures = Json::object();     // by the names in a record; null where there is none
  Json shape = Json::object();       // what the engine set up
  Counters counters;                 // of the engine, over warm-up and repeats
  std::string difference;            // of what was played back from its record; empty: none
  std::vector<std::string> notes;    // of the policy
  std::string weights;               // tokens must equal those of any other cell with the same
  std::string device;
  // Of the last repeat, by prompt; none where the device was simulated.
  std::vector<std::vector<std::int32_t>> tokens;
};

// Done and total new tokens over warm-up and repeats; done may end lower, where sequences stop.
using CellProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Links measured in this process, by kind of device.
using LinkRates = std::map<DeviceKind, double>;

// What goes wrong in the cell, it not fitting included, becomes a reason. With `rethrow`, what the
// user gave wrong and what the device refused is thrown instead.
CellResult run_cell(const PreparedCell& cell, ModelCache& models, LinkRates& links, bool rethrow,
                    const CellProgress& progress = {});

// The same for the same tokens in the same order, everywhere.
std::string hash_tokens(const std::vector<std::vector<std::int32_t>>& tokens);

}  // namespace sluice
