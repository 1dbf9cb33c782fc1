// The steps of a pass over a dense model: its streamed units one by one, in a circle that goes on
// into the next pass.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice {

class Walk {
 public:
  // `order` is ModelView::order: one token's walk over the streamed units.
  explicit Walk(std::span<const UnitId> order);

  std::size_t size() const { return size_; }  // steps of a pass

  // The `i`-th step of a pass. It needs one unit; `soon` are the others, once each: the rest of this
  // pass, then the next one's up to here. When `last` no pass follows and `soon` ends with this one.
  // The spans point into this object. Each step takes the next index.
  Step step(std::size_t i, Phase phase, std::uint32_t tokens, bool last);

  // The step after those, of the head, which is on the device for good. `head` must outlive it.
  Step head(const UnitId& head, Phase phase, std::uint32_t tokens, bool last);

 private:
  std::size_t size_;
  std::vector<UnitId> circle_;  // the order twice: every window of it is one span
  std::uint64_t next_index_ = 0;
};

}  // namespace sluice
