// The ring over weights as they are stored.
#include "sluice/ring.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{kRingDepth, kRingLanes};

}  // namespace

SLUICE_POLICY(RingPolicy, ring_prefetch, "1.0", "keeps what fits, streams the rest in a ring",
              kParams);
