#include "harness/host_reads.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <thread>

#include "core/device/cpu_stream.hpp"

namespace sluice {
namespace {

constexpr int kReadTries = 9;

// The sum, so that nothing of the reading can be left out.
std::uint64_t read_part(std::span<const std::uint64_t> words, unsigned part, unsigned parts) {
  constexpr std::uint64_t kLanes = 32;
  std::array<std::uint64_t, kLanes> sums{};
  const std::uint64_t end = words.size() * (part + std::uint64_t{1}) / parts / kLanes * kLanes;
  for (std::uint64_t i = words.size() * part / parts / kLanes * kLanes; i < end; i += kLanes)
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[i + lane];
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

double gbps_of(std::span<const std::uint64_t> words, unsigned threads) {
  std::uint64_t least_ns = ~std::uint64_t{0};
  for (int i = 0; i < kReadTries; ++i) {
    const std::uint64_t begin = steady_now_ns();
    std::atomic<std::uint64_t> sum = 0;
    {
      std::vector<std::jthread> readers;
      for (unsigned t = 0; t < threads; ++t)
        readers.emplace_back([&, t] { sum += read_part(words, t, threads); });
    }
    least_ns = std::min(least_ns, steady_now_ns() - begin);
  }
  return static_cast<double>(words.size_bytes()) /
         static_cast<double>(std::max(least_ns, std::uint64_t{1}));
}

}  // namespace

std::vector<HostRead> measure_host_reads(std::span<const std::uint64_t> words) {
  std::vector<HostRead> reads;
  const unsigned all = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned threads = 1;; threads = std::min(2 * threads, all)) {
    reads.push_back({threads, gbps_of(words, threads)});
    if (threads == all) return reads;
  }
}

}  // namespace sluice
