// Sizes and offsets at multiples of something.
#pragma once
#include <cstdint>

namespace sluice {

// The smallest multiple of `multiple` that is not below `n`.
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace sluice
