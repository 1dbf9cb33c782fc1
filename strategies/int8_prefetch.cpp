// The ring over int8: half the bytes of bf16 cross the link.
#include "sluice/ring.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams = quantised_ring_params("int8", "bf16|int8");

struct Int8Prefetch final : QuantisedRing {
  explicit Int8Prefetch(const Params& params) : QuantisedRing(params, Encoding::int8) {}
};

}  // namespace

SLUICE_POLICY(Int8Prefetch, int8_prefetch, "1.0",
              "keeps what fits and streams the rest in a ring, all of it in int8", kParams);
