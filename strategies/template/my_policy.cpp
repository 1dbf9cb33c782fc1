// A policy to start from: it asks for the next units ahead and gives up the least recently used.
// Everything that can be decided is in sluice/policy.hpp; what is not overridden has a default.
#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

// What an experiment may set: name, type, default, smallest, largest, help.
constexpr std::array kParams{
    ParamSpec{"ahead", ParamType::integer, 2, 0, 16, "units to ask for ahead"},
};

class MyPolicy final : public IOffloadPolicy {
 public:
  explicit MyPolicy(const Params& params)
      : ahead_(static_cast<std::size_t>(params.integer("ahead"))) {}

  // Once, before the run: what stays on the device for good, and how many copy streams there are.
  Layout layout(const ModelView&, const Budget&) override { return {.lanes = 1}; }

  // Before each step: what it needs, then what comes next. Asking is cheap and may be refused.
  void before(const Step& step, Actions& actions) override {
    for (const UnitId unit : step.needs) actions.prefetch(unit);
    for (const UnitId unit : step.soon.first(std::min(ahead_, step.soon.size())))
      if (actions.prefetch(unit) == Asked::no_slot) break;
  }

  // A slot is needed: which unit goes? kNoUnit gives the wish for `incoming` up instead.
  UnitId victim(const UnitInfo&, const Candidates& candidates) override {
    return candidates.oldest();
  }

 private:
  std::size_t ahead_;
};

}  // namespace

SLUICE_POLICY(MyPolicy, my_policy, "0.1", "asks for the next units ahead", kParams);
