#include "core/device/machine.hpp"

#include <algorithm>

namespace sluice {

double RateCurve::ns(std::uint64_t bytes) const {
  const auto size = static_cast<double>(bytes);
  const auto time = [](const Point& p) { return static_cast<double>(p.bytes) / p.gbps; };
  if (bytes <= points.front().bytes) return time(points.front()) * (bytes == 0 ? 0.0 : 1.0);
  if (bytes >= points.back().bytes) return size / points.back().gbps;
  const auto above = std::ranges::lower_bound(points, bytes, {}, &Point::bytes);
  const auto below = above - 1;
  const double part =
      (size - static_cast<double>(below->bytes)) / static_cast<double>(above->bytes - below->bytes);
  return time(*below) + part * (time(*above) - time(*below));
}

}  // namespace sluice
