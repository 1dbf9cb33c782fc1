// The steps of a pass: the streamed units that every token walks one by one, in a circle that goes on
// into the next pass; between them, some experts of a layer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice {

// Of ModelView::order, without the experts.
std::vector<UnitId> walked_by_all(const ModelView& view);

class Walk {
 public:
  // `order`: one token's walk over the units that every token needs.
  explicit Walk(std::span<const UnitId> order);

  std::size_t size() const { return size_; }  // steps of a pass

  // The `i`-th step of a pass. It needs one unit; `soon` are the others, once each: the rest of this
  // pass, then the next one's up to here. When `last` no pass follows and `soon` ends with this one.
  // The spans point into this object. Each step takes the next index.
  Step step(std::size_t i, Phase phase, std::uint32_t tokens, bool last);

  // A step of experts behind the `i`-th, the attention of their layer. `soon` is `rest`, experts that
  // are certain to follow, and then the units behind the `i`-th up to itself. `needs` must outlive the
  // step, which is valid until the next one.
  Step experts(std::size_t i, Phase phase, std::uint32_t tokens, bool last,
               std::span<const UnitId> needs, std::span<const UnitId> rest);

  // A step of units that nothing is known to follow. `needs` must outlive it.
  Step apart(std::span<const UnitId> needs, Phase phase);

  // The step after those, of the head, which is on the device for good. `head` must outlive it.
  Step head(const UnitId& head, Phase phase, std::uint32_t tokens, bool last);

 private:
  std::size_t size_;
  std::vector<UnitId> circle_;  // the order twice: every window of it is one span
  std::vector<UnitId> soon_;    // of a step of experts
  std::uint64_t next_index_ = 0;
};

}  // namespace sluice
