// The engine's book: what a policy's decisions amounted to. The same on every device, but for
// `cancelled_bytes`: how far a guess got depends on the link.
#pragma once
#include <cstdint>

namespace sluice {

struct Counters {
  std::uint64_t hits = 0;     // needed units that had a slot when their step began; kept ones, too
  std::uint64_t misses = 0;   // needed units that had none
  std::uint64_t wasted = 0;   // loads that were evicted before any read
  std::uint64_t refused = 0;  // wishes out of bounds
  std::uint64_t loads = 0;    // of units into rotating slots
  std::uint64_t h2d_bytes = 0;        // of those loads, on the wire; cancelled guesses included
  std::uint64_t cancelled_bytes = 0;  // never issued, since the unit was evicted before
  // Loaded once, before the first step; not part of h2d_bytes, and the head not part of it.
  std::uint64_t kept_bytes = 0;

  friend bool operator==(const Counters&, const Counters&) = default;
};

// What happened between two readings of the book.
constexpr Counters operator-(const Counters& a, const Counters& b) {
  return {.hits = a.hits - b.hits,
          .misses = a.misses - b.misses,
          .wasted = a.wasted - b.wasted,
          .refused = a.refused - b.refused,
          .loads = a.loads - b.loads,
          .h2d_bytes = a.h2d_bytes - b.h2d_bytes,
          .cancelled_bytes = a.cancelled_bytes - b.cancelled_bytes,
          .kept_bytes = a.kept_bytes - b.kept_bytes};
}

}  // namespace sluice
