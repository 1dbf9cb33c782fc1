// Decides otherwise each time it is loaded into a run, as one that looks at a clock would.
#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

int runs = 0;

class Moody final : public IOffloadPolicy {
 public:
  explicit Moody(const Params&) : eager_(runs++ % 2 == 0) {}

  void before(const Step& step, Actions& actions) override {
    for (const UnitId unit : step.needs) actions.prefetch(unit);
    if (eager_ && !step.soon.empty()) actions.prefetch(step.soon.front());
  }

 private:
  bool eager_;
};

}  // namespace

SLUICE_POLICY(Moody, moody, "1.0", "decides otherwise in every other run", kNoParams);
