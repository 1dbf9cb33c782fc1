// Random wishes, many of them out of bounds. Whatever it asks for, a run must stay right.
#include <random>

#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    ParamSpec{"seed", ParamType::integer, 1, 0, 1e9, "of the random numbers"},
};

class Chaos final : public IOffloadPolicy {
 public:
  explicit Chaos(const Params& params)
      : random_(static_cast<std::uint32_t>(params.integer("seed"))) {}

  // A layout that works, or the run would be refused: random are what it keeps and how it copies.
  Layout layout(const ModelView& model, const Budget& budget) override {
    units_ = static_cast<UnitId>(model.units.size());
    Layout out{.lanes = pick(4), .blocking = pick(4) == 0};
    for (const UnitKind kind : {UnitKind::attention, UnitKind::mlp}) {
      const std::vector<UnitId> units = units_of(model, kind);
      std::uint32_t free = budget.slots[kind];
      for (const UnitId unit : units) {
        if (free <= 1 || pick(3) != 0) continue;
        out.keep.push_back(unit);
        --free;
      }
    }
    return out;
  }

  void before(const Step& step, Actions& actions) override {
    for (std::uint32_t i = pick(8); i > 0; --i) wish(actions);
    if (pick(2) == 0)
      for (const UnitId unit : step.needs) actions.drop(unit);
    if (pick(2) == 0)
      for (const UnitId unit : step.soon.first(std::min<std::size_t>(pick(6), step.soon.size())))
        actions.prefetch(unit);
  }

  void routed(std::span<const UnitId>, Actions& actions) override { wish(actions); }

  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) override {
    switch (pick(5)) {
      case 0: return kNoUnit;
      case 1: return incoming.id;
      case 2: return pick(units_ + 5);
      case 3: return candidates.oldest();
      default: break;
    }
    UnitId unit = candidates.oldest();
    for (std::size_t i = pick(static_cast<std::uint32_t>(candidates.size())); i > 0; --i)
      unit = candidates.newer(unit);
    return unit;
  }

 private:
  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void wish(Actions& actions) {
    const UnitId unit = pick(units_ + 3);
    if (pick(3) == 0)
      actions.drop(unit);
    else
      actions.prefetch(unit);
  }

  std::mt19937 random_;
  UnitId units_ = 0;
};

}  // namespace

SLUICE_POLICY(Chaos, chaos, "1.0", "random wishes", kParams);
