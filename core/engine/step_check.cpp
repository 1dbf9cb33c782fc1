#include "core/engine/step_check.hpp"

#include <utility>

#include "core/engine/budget.hpp"
#include "core/error.hpp"

namespace sluice {

void StepCheck::check(const Step& step, const PerKind<std::uint32_t>& rotating) {
  ++checks_;
  PerKind<std::uint32_t> moving;
  for (UnitId unit : step.needs) {
    if (!book_.knows(unit))
      throw Error("step {} needs unit {}; the model's units are 0 to {}", step.index, unit,
                  named_by_.size() - 1);
    const UnitInfo& info = book_.info(unit);
    if (info.kind == UnitKind::embedding)
      throw Error("step {} needs unit {}, the embedding, which stays on the host", step.index,
                  unit);
    if (std::exchange(named_by_[unit], checks_) == checks_)
      throw Error("step {} needs unit {} twice", step.index, unit);
    if (!book_.is_kept(unit)) ++moving[info.kind];
  }
  for (UnitKind kind : kStreamedKinds)
    if (moving[kind] > rotating[kind])
      throw Error("step {} needs {} {} units that are not kept; {} rotating slots hold them",
                  step.index, moving[kind], name_of(kind), rotating[kind]);
}

}  // namespace sluice
