// Fetches each unit when it is needed, while the host and the compute stream wait. Nothing is
// asked ahead and nothing overlaps: what every other policy is measured against.
#include "sluice/helpers.hpp"

namespace {

using namespace sluice;

class NaiveSync final : public IOffloadPolicy {
 public:
  explicit NaiveSync(const Params&) {}

  Layout layout(const ModelView&, const Budget&) override { return {.blocking = true}; }
};

}  // namespace

SLUICE_POLICY(NaiveSync, naive_sync, "1.0", "fetches on demand while everything waits", kNoParams);
