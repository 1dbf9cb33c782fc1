// While one layer computes, one copy lane brings the next. All slots rotate, least recently used
// first. With one slot of each kind that still overlaps: while attention computes, the layer's MLP
// arrives in its own slot, and the other way round.
#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

class Prefetch final : public IOffloadPolicy {
 public:
  explicit Prefetch(const Params&) {}

  Layout layout(const ModelView& model, const Budget&) override {
    units_.assign(model.units.begin(), model.units.end());
    return {.lanes = 1};
  }

  void before(const Step& step, Actions& actions) override {
    for (const UnitId unit : step.needs) actions.prefetch(unit);
    if (step.needs.empty()) return;
    // The rest of this layer, then the next one up to the kind that computes now. Further ahead
    // lies nothing that would not take a slot from a unit that is needed before it.
    const UnitInfo& now = units_[step.needs.front()];
    std::int32_t layer = now.layer;
    for (const UnitId unit : step.soon) {
      const UnitInfo& ahead = units_[unit];
      if (!is_streamed(ahead.kind)) continue;
      if (ahead.layer != layer && layer != now.layer) return;
      layer = ahead.layer;
      actions.prefetch(unit);
      if (ahead.layer != now.layer && ahead.kind == now.kind) return;
    }
  }

 private:
  std::vector<UnitInfo> units_;
};

}  // namespace

SLUICE_POLICY(Prefetch, prefetch, "1.0", "brings the next layer while this one computes",
              kNoParams);
