// Caches of experts in the slowest and plainest way: what the policies' decisions are held against.
// Nothing of their code is in here.
#pragma once
#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <vector>

#include "sluice/unit.hpp"

namespace sluice::test {

// `slots` units; the rule is in victim(). A step's units are never evicted by that step.
class SlowCache {
 public:
  explicit SlowCache(std::size_t slots) : slots_(slots) {}
  virtual ~SlowCache() = default;

  // How many of `needs`, of one layer, were there.
  std::size_t step(const std::vector<UnitId>& needs, std::size_t layer) {
    std::size_t hits = 0;
    for (const UnitId unit : needs) hits += holds(unit) ? 1 : 0;
    begin(needs, layer);
    for (const UnitId unit : needs) {
      const bool hit = holds(unit);
      if (!hit && held_.size() == slots_) {
        std::vector<UnitId> offered;
        for (const auto& [other, its_layer] : held_)
          if (std::ranges::find(needs, other) == needs.end()) offered.push_back(other);
        const UnitId gone = victim(layer, offered);
        held_.erase(gone);
        left(gone);
      }
      held_[unit] = layer;
      used(unit, hit);
    }
    for (const UnitId unit : needs) recency_.remove(unit);
    recency_.insert(recency_.end(), needs.begin(), needs.end());
    return hits;
  }
  bool holds(UnitId unit) const { return held_.contains(unit); }

 protected:
  virtual UnitId victim(std::size_t layer, const std::vector<UnitId>& offered) = 0;
  virtual void begin(const std::vector<UnitId>&, std::size_t) {}
  virtual void used(UnitId, bool) {}
  virtual void left(UnitId) {}

  UnitId least_recent(const std::vector<UnitId>& among) const {
    for (const UnitId unit : recency_)
      if (std::ranges::find(among, unit) != among.end()) return unit;
    return kNoUnit;
  }

  std::size_t slots_;
  std::map<UnitId, std::size_t> held_;  // with the layer
  std::list<UnitId> recency_;           // of everything, oldest first
};

class SlowGlobalLru final : public SlowCache {
 public:
  using SlowCache::SlowCache;

 private:
  UnitId victim(std::size_t, const std::vector<UnitId>& offered) override {
    return least_recent(offered);
  }
};

// Each layer has its share of the slots and takes from itself when it is there, else from the layer
// that is furthest beyond its own; among such, from the one walked last.
class SlowLayered : public SlowCache {
 public:
  SlowLayered(std::size_t slots, std::size_t layers) : SlowCache(slots), layers_(layers) {}

 protected:
  std::size_t share(std::size_t layer) const {
    return slots_ / layers_ + (layer < slots_ % layers_ ? 1 : 0);
  }

 private:
  virtual UnitId pick(const std::vector<UnitId>& among) = 0;

  UnitId victim(std::size_t layer, const std::vector<UnitId>& offered) final {
    std::vector<std::vector<UnitId>> of(layers_);
    std::vector<std::ptrdiff_t> beyond(layers_);
    for (std::size_t i = 0; i < layers_; ++i) beyond[i] = -static_cast<std::ptrdiff_t>(share(i));
    for (const auto& [unit, its_layer] : held_) ++beyond[its_layer];
    for (const UnitId unit : offered) of[held_.at(unit)].push_back(unit);
    if (beyond[layer] >= 0 && !of[layer].empty()) return pick(of[layer]);
    std::size_t from = layers_;
    for (std::size_t back = 1; back <= layers_; ++back) {
      const std::size_t i = (layer + layers_ - back) % layers_;
      if (!of[i].empty() && (from == layers_ || beyond[i] > beyond[from])) from = i;
    }
    return pick(of[from]);
  }

  std::size_t layers_;
};

class SlowLayerLru final : public SlowLayered {
 public:
  using SlowLayered::SlowLayered;

 private:
  UnitId pick(const std::vector<UnitId>& among) override { return least_recent(among); }
};

// The sum over all uses of 1/2 for each half-life since.
class SlowLayerLfu final : public SlowLayered {
 public:
  SlowLayerLfu(std::size_t slots, std::size_t layers, double half_life)
      : SlowLayered(slots, layers), half_life_(half_life) {}

 private:
  void begin(const std::vector<UnitId>&, std::size_t layer) override { now_ = ++times_[layer]; }
  void used(UnitId unit, bool) override { uses_[unit].push_back(now_); }

  UnitId pick(const std::vector<UnitId>& among) override {
    std::vector<UnitId> by_age;
    for (std::vector<UnitId> rest = among; !rest.empty();) {
      const UnitId next = least_recent(rest);
      by_age.push_back(next);
      std::erase(rest, next);
    }
    return *std::ranges::min_element(by_age, {}, [&](UnitId unit) { return score(unit); });
  }
  double score(UnitId unit) {
    double sum = 0;
    for (const std::size_t time : uses_[unit])
      sum += std::exp2((static_cast<double>(time) - static_cast<double>(now_)) / half_life_);
    return sum;
  }

  double half_life_;
  std::size_t now_ = 0;
  std::map<std::size_t, std::size_t> times_;  // of each layer
  std::map<UnitId, std::vector<std::size_t>> uses_;
};

}  // namespace sluice::test
