// The ring over int4: little more than a quarter of the bytes of bf16 cross the link.
#include "sluice/ring.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams = quantised_ring_params("int4", "bf16|int4");

struct Int4Prefetch final : QuantisedRing {
  explicit Int4Prefetch(const Params& params) : QuantisedRing(params, Encoding::int4) {}
};

}  // namespace

SLUICE_POLICY(Int4Prefetch, int4_prefetch, "1.0",
              "keeps what fits and streams the rest in a ring, all of it in int4", kParams);
