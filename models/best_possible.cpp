#include "models/best_possible.hpp"

#include <set>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"

namespace sluice {

BestHits best_possible(std::span<const NeededTogether> steps, std::size_t slots) {
  constexpr std::size_t kNotAgain = ~std::size_t{0};
  // By step and place in it: the step that needs the unit next.
  std::vector<std::vector<std::size_t>> next(steps.size());
  std::unordered_map<UnitId, std::size_t> later;
  for (std::size_t i = steps.size(); i-- > 0;) {
    for (const UnitId unit : steps[i].units) {
      const auto found = later.find(unit);
      next[i].push_back(found == later.end() ? kNotAgain : found->second);
    }
    for (const UnitId unit : steps[i].units) later[unit] = i;
  }

  BestHits hits;
  std::unordered_map<UnitId, std::size_t> held;      // with the step that needs it next
  std::set<std::pair<std::size_t, UnitId>> by_need;  // the same, of what the step at hand can spare
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& [phase, units] = steps[i];
    if (units.size() > slots)
      throw Error("a step needs {} units; {} slots hold them", units.size(), slots);
    std::size_t misses = 0;
    for (const UnitId unit : units) {
      const auto found = held.find(unit);
      if (found == held.end()) {
        ++misses;
        continue;
      }
      by_need.erase({found->second, unit});
      ++(phase == Phase::prefill ? hits.prefill : hits.decode);
    }
    for (; held.size() + misses > slots; by_need.erase(std::prev(by_need.end())))
      held.erase(std::prev(by_need.end())->second);
    for (std::size_t k = 0; k < units.size(); ++k) {
      held[units[k]] = next[i][k];
      by_need.insert({next[i][k], units[k]});
    }
  }
  return hits;
}

}  // namespace sluice
