// The least recently used expert goes.
#include <string>

#include "sluice/expert_cache.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{kExpertScope, kExpertEncoding, kExpertPrefill, kExpertPrefillSlots};

class ExpertLru final : public ExpertCache {
 public:
  using ExpertCache::ExpertCache;

  // A token walks its layers in a circle, so one list that is shorter than the circle has thrown out
  // each expert before it comes round again.
  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = ExpertCache::layout(model, budget);
    const std::size_t slots = budget.slots[UnitKind::expert];
    const std::size_t a_token = expert_layers() * static_cast<std::size_t>(model.experts_per_token);
    if (!is_layered() && slots < a_token)
      out.notes.push_back(std::to_string(slots) + " slots hold less than the " +
                          std::to_string(a_token) +
                          " experts of one token, so that scope=global hits nothing; give it that "
                          "many slots, or scope=layer");
    return out;
  }
};

}  // namespace

SLUICE_POLICY(ExpertLru, expert_lru, "1.0", "caches experts; the least recently used one goes",
              kParams);
