// Encodings to ask a store for.
#pragma once
#include <vector>

#include "core/weights/weight_store.hpp"

namespace sluice::test {

// Of all units but the embedding.
inline std::vector<EncodingSet> all_in(const ModelPlan& plan, Encoding encoding) {
  std::vector<EncodingSet> sets;
  for (const UnitSpec& unit : plan.units)
    sets.push_back(unit.kind == UnitKind::embedding ? Encoding::native : encoding);
  return sets;
}

}  // namespace sluice::test
