// Fetches each unit when its step comes, and the host waits for the copy before it goes on. Nothing
// is asked ahead: a copy overlaps at most with what was enqueued before it, the work on the unit
// before. What every other policy is measured against.
#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

class NaiveSync final : public IOffloadPolicy {
 public:
  explicit NaiveSync(const Params&) {}

  Layout layout(const ModelView&, const Budget&) override { return {.blocking = true}; }
};

}  // namespace

SLUICE_POLICY(NaiveSync, naive_sync, "1.0", "fetches on demand while the host waits", kNoParams);
