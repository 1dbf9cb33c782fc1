#include "harness/phase_meter.hpp"

namespace sluice {
namespace {

Counters sum(const Counters& a, const Counters& b) { return a - (Counters{} - b); }

}  // namespace

Lease PhaseMeter::acquire(const Step& step) {
  Lease lease = inner_.acquire(step);
  const Counters& counters = inner_.counters();
  Counters& phase = step.phase == Phase::prefill ? book_.prefill : book_.decode;
  phase = sum(phase, counters - seen_);
  seen_ = counters;
  if (step.phase != Phase::prefill && step.needs.front() == first_unit_) {
    ++book_.decode_passes;
    book_.decode_rows += step.tokens;
  }
  return lease;
}

}  // namespace sluice
