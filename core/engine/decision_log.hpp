// Decisions as JSON lines, to be read by people, compared line by line, and played back.
//
//   {"transfer":{"wire":"native","resident":"native"},"units":[1,57]}      the first and the last
//   {"layout":{"keep":[3,4],"rotating":{"attention":1},"lanes":1,"blocking":false}}
//   {"step":0,"phase":"prefill","tokens":65,"needs":[1]}
//   {"step":0,"victim":5,"for":2,"refused":false}    victim() named it; null: none
//   {"step":0,"evicted":5,"for":2}                   null: it was dropped
//   {"step":0,"wish":2,"answer":"accepted"}          after the evictions that it led to
//   {"step":0,"drop":4,"refused":false}
//   {"step":0,"guesses":2}                           so many were wanted
//   {"step":0,"routed":[5,6]}
//   {"step":0,"place":4,"at":"host","refused":true}
#pragma once
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/engine/decisions.hpp"

namespace sluice {

class DecisionLog final : public DecisionSink {
 public:
  // `out` must outlive it.
  explicit DecisionLog(std::ostream& out) : out_(out) {}
  // Nothing more is written.
  void close() { closed_ = true; }

  void transfer(UnitId unit, Transfer transfer) override;
  void layout(const Layout& layout) override;
  void step(const Step& step) override;
  void wanted_guesses(std::uint32_t count) override;
  void routed(std::span<const UnitId> units) override;
  void wish(UnitId unit, Asked answer) override;
  void drop(UnitId unit, bool refused) override;
  void victim(UnitId named, UnitId incoming, bool refused) override;
  void evicted(UnitId unit, UnitId incoming) override;
  void refused_place(UnitId unit, Place place) override;

 private:
  struct Run {  // of units with the same transfer
    Transfer transfer;
    UnitId first = kNoUnit, last = kNoUnit;
  };

  void line(const std::string& rest);  // of a step

  std::ostream& out_;
  bool closed_ = false;
  std::vector<Run> transfers_;
  std::uint64_t step_ = 0;
};

}  // namespace sluice
