// How fast the processor reads its own memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct HostRead {
  unsigned threads = 0;
  double gbps = 0;  // 1e9 bytes a second; the best of several tries
};

// By 1, 2, 4, ... and all threads. `words` should be more than the caches hold.
std::vector<HostRead> measure_host_reads(std::span<const std::uint64_t> words);

}  // namespace sluice
