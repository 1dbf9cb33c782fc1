// Whether the units that a step needs can be there together.
#pragma once
#include <cstdint>
#include <vector>

#include "core/engine/book.hpp"
#include "sluice/policy.hpp"

namespace sluice {

class StepCheck {
 public:
  // Both must outlive it.
  StepCheck(const Book& book, const ModelView& view)
      : book_(book), named_by_(view.units.size(), 0) {}

  // Throws Error for a unit that is not there, the embedding, one that is named twice, and for more of a
  // kind that move than the `rotating` slots hold.
  void check(const Step& step, const PerKind<std::uint32_t>& rotating);

 private:
  const Book& book_;
  std::vector<std::uint64_t> named_by_;  // index: UnitId; the check that saw it last
  std::uint64_t checks_ = 0;
};

}  // namespace sluice
