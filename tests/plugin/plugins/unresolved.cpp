// Needs a function that nobody has.
#include "sluice/helpers.hpp"

void nobody_has_this();

namespace {

class Unresolved final : public sluice::IOffloadPolicy {
 public:
  explicit Unresolved(const sluice::Params&) { nobody_has_this(); }
};

}  // namespace

SLUICE_POLICY(Unresolved, unresolved, "1.0", "cannot be loaded", sluice::kNoParams);
