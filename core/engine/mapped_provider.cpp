#include "core/engine/mapped_provider.hpp"

#include "core/error.hpp"

namespace sluice {

MappedProvider::MappedProvider(const WeightStore& weights)
    : weights_(weights), view_(weights.view()) {
  if (weights.unpinned_bytes() != 0)
    throw InputError("mapped needs all weights in pinned memory; {} bytes of them are, {} are not",
                     weights.pinned_bytes(), weights.unpinned_bytes());
  for (const UnitInfo& unit : view_.units)
    if (unit.kind != UnitKind::embedding) ++units_[unit.kind];
}

Lease MappedProvider::acquire(const Step& step) {
  for (UnitId unit : step.needs) {
    if (unit >= view_.units.size() || view_.units[unit].kind == UnitKind::embedding)
      throw Error("step {} needs unit {}, which is not one that a pass acquires", step.index, unit);
    ++counters_.misses;
    counters_.h2d_bytes += view_.units[unit].size(Encoding::native);
  }
  return {*this, step};
}

Weights MappedProvider::use(const Step& step, std::size_t i) {
  if (i >= step.needs.size())
    throw Error("unit {} of step {}'s needs is used; it has {}", i, step.index, step.needs.size());
  const UnitId unit = step.needs[i];
  const std::byte* slab = weights_.slab(unit, Encoding::native);
  return {slab, range_of(slab, view_.units[unit].size(Encoding::native)), Encoding::native};
}

}  // namespace sluice
