// What a policy decided and what the engine answered, as it happens.
#pragma once
#include <span>
#include <string_view>

#include "sluice/policy.hpp"

namespace sluice {

// Called by the engine, each time before it goes on. What is said after step() or routed() and before
// the next of these happened because of it.
class DecisionSink {
 public:
  virtual ~DecisionSink() = default;

  virtual void transfer(UnitId unit, Transfer transfer) = 0;  // of each unit but the embedding
  virtual void layout(const Layout& layout) = 0;
  virtual void step(const Step& step) = 0;
  virtual void wanted_guesses(std::uint32_t count) = 0;  // behind the last step; never 0
  virtual void routed(std::span<const UnitId> units) = 0;
  virtual void wish(UnitId unit, Asked answer) = 0;
  virtual void drop(UnitId unit, bool refused) = 0;
  // What victim() answered; refused: it was not one of the candidates.
  virtual void victim(UnitId named, UnitId incoming, bool refused) = 0;
  // `incoming` kNoUnit: it was dropped.
  virtual void evicted(UnitId unit, UnitId incoming) = 0;
  virtual void refused_place(UnitId unit, Place place) = 0;
};

}  // namespace sluice
