// With CASE 0 this is a plugin; each other case makes one mistake that the compiler must notice.
#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

class Mine final : public IOffloadPolicy {
 public:
#if CASE == 1  // not how a policy is made
  explicit Mine(int) {}
#else
  explicit Mine(const Params&) {}
#endif

#if CASE == 2  // the budget by value: another function
  Layout layout(const ModelView&, Budget) override { return {}; }
#elif CASE == 3  // a hook with another result
  void victim(const UnitInfo&, const Candidates&) override {}
#elif CASE == 4  // a hook that there is none of
  void after(const Step&, Actions&) override {}
#else
  void before(const Step& step, Actions& actions) override {
#if CASE == 5  // no clock, no events: a policy cannot see whether a copy has finished
    if (actions.is_here(step.needs[0])) return;
#endif
    for (const UnitId unit : step.needs) actions.prefetch(unit);
  }
#endif
};

struct NoPolicy {
  explicit NoPolicy(const Params&) {}
};

}  // namespace

#if CASE == 6
SLUICE_POLICY(NoPolicy, mine, "1.0", "is none", kNoParams);
#elif CASE == 7
SLUICE_POLICY(Mine, a_name_that_is_longer_than_the_sixty_three_letters_that_there_is_room_for,
              "1.0", "has a long name", kNoParams);
#elif CASE == 8
SLUICE_POLICY(Mine, mine, "1.0", "is there twice", kNoParams);
SLUICE_POLICY(Mine, mine, "1.0", "is there twice", kNoParams);
#else
SLUICE_POLICY(Mine, mine, "1.0", "compiles", kNoParams);
#endif
