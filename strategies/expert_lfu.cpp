// The least often used expert goes, where a use counts half as much after each half-life: between
// least recently used (a short one) and least frequently used (a long one).
#include <cmath>
#include <tuple>

#include "sluice/expert_cache.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{kExpertScope, kExpertEncoding, kExpertPrefill, kExpertPrefillSlots,
                             ParamSpec{"half_life", ParamType::integer, 16, 1, 1e6,
                                       "tokens after which a use counts half as much"}};

class ExpertLfu final : public ExpertCache {
 public:
  explicit ExpertLfu(const Params& params)
      : ExpertCache(params), half_life_(static_cast<double>(params.integer("half_life"))) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = ExpertCache::layout(model, budget);
    ranks_.assign(pools(), {});
    uses_.assign(unit_count(), {});
    return out;
  }

 private:
  // Ages change no order: a use at time t weighs 2^(t / half-life), and weights only add up.
  struct Rank {
    double score = -1e300;  // log2 of the weights' sum
    std::uint64_t last = 0;
    UnitId unit = kNoUnit;
    bool operator<(const Rank& other) const {
      return std::tie(score, last, unit) < std::tie(other.score, other.last, other.unit);
    }
  };

  void used(UnitId unit, bool) override {
    Rank& rank = uses_[unit];
    const bool ranked = ranks_[pool_of(unit)].erase(rank) != 0;
    const double now = static_cast<double>(visits(unit)) / half_life_;
    const double most = std::max(rank.score, now);
    rank = {most + std::log2(std::exp2(rank.score - most) + std::exp2(now - most)), ++clock_, unit};
    if (ranked) entered(unit);
  }
  void entered(UnitId unit) override {
    uses_[unit].unit = unit;
    ranks_[pool_of(unit)].insert(uses_[unit]);
  }
  void left(UnitId unit) override { ranks_[pool_of(unit)].erase(uses_[unit]); }

  UnitId worst(std::size_t pool, const Candidates& candidates) override {
    for (const Rank& rank : ranks_[pool])
      if (may_go(rank.unit, candidates)) return rank.unit;
    return kNoUnit;
  }

  double half_life_;
  std::vector<std::set<Rank>> ranks_;  // index: pool; of what it holds
  std::vector<Rank> uses_;             // index: UnitId
  std::uint64_t clock_ = 0;
};

}  // namespace

SLUICE_POLICY(ExpertLfu, expert_lfu, "1.0",
              "caches experts; the least often used one goes, old uses counting less", kParams);
