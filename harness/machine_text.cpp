#include "harness/machine_text.hpp"

#include <fmt/format.h>

#include <variant>

#include "harness/machine_file.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kMebibyte = 1ull << 20;

std::string copy_size_text(std::uint64_t bytes) {
  return bytes % kMebibyte == 0 ? fmt::format("{}MiB", bytes / kMebibyte)
                                : fmt::format("{}KiB", bytes / 1024);
}

std::string rate_text(double rate) { return fmt::format("{:.4g}", rate); }

struct FigureText {
  const Machine& machine;
  const Key& key;

  std::string operator()(std::string Machine::*figure) const { return machine.*figure; }
  std::string operator()(double Machine::*figure) const { return rate_text(machine.*figure); }
  std::string operator()(std::uint64_t Machine::*figure) const {
    return key.type == KeyType::size ? fmt::format("{}MiB", machine.*figure / kMebibyte)
                                     : fmt::format("{}", machine.*figure);
  }
  std::string operator()(RateCurve Machine::*figure) const {
    std::string out;
    double last_ns = 0;
    for (const RateCurve::Point& point : (machine.*figure).points) {
      const auto ns_at = [&](const std::string& gbps) {
        return static_cast<double>(point.bytes) / std::stod(gbps);
      };
      std::string gbps = rate_text(point.gbps);
      // Nor must rounding make a larger copy arrive before a smaller one.
      while (ns_at(gbps) < last_ns) gbps = rate_text(std::stod(gbps) * 0.999);
      out += fmt::format("{}{}: {}", out.empty() ? "{" : ", ", copy_size_text(point.bytes), gbps);
      last_ns = ns_at(gbps);
    }
    return out + "}";
  }
};

}  // namespace

std::string machine_text(const Probed& probed, const std::vector<std::string>& about) {
  std::string out;
  for (const std::string& line : about) out += "# " + line + "\n";
  std::string reads;
  for (const HostRead& read : probed.host_reads)
    reads += fmt::format("{}{} {}: {:.4g}", reads.empty() ? "" : ", ", read.threads,
                         read.threads == 1 ? "thread" : "threads", read.gbps);
  for (const auto& [key, figure] : machine_keys()) {
    out += fmt::format("{}: {}", key.path, std::visit(FigureText{probed.machine, key}, figure));
    if (key.path == "link_limit_gbps")
      out += "  # as asked";
    else if (key.path != "name")
      out += "  # measured";
    if (key.path == "host_read_gbps") out += "; " + reads;
    out += "\n";
  }
  return out;
}

}  // namespace sluice
