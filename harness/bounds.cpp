#include "harness/bounds.hpp"

#include <algorithm>

namespace sluice {

Bound bound_of(const BusyTimes& busy, std::uint64_t elapsed_ns) {
  const std::uint64_t link = std::max(busy.h2d_ns, busy.d2h_ns);
  const std::uint64_t host = std::max(busy.host_ns, busy.line_ns);
  const std::uint64_t most = std::max({link, busy.compute_ns, host});
  const auto elapsed = static_cast<double>(elapsed_ns);
  const auto percent = [&](std::uint64_t ns) { return 100 * static_cast<double>(ns) / elapsed; };
  return {.by = 2 * most < elapsed_ns     ? "stall"
                : most == link            ? "link"
                : most == busy.compute_ns ? "compute"
                                          : "host",
          .at_best = most == 0 ? 1 : std::max(1.0, elapsed / static_cast<double>(most)),
          .link_percent = percent(link),
          .compute_percent = percent(busy.compute_ns),
          .host_percent = percent(host)};
}

}  // namespace sluice
