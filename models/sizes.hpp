// A model's sizes, which its config has as std::int32_t and which are never negative, as what they are
// multiplied with.
#pragma once
#include <cstdint>

namespace sluice {

inline std::uint32_t size(std::int32_t n) { return static_cast<std::uint32_t>(n); }
inline std::uint64_t wide(std::int32_t n) { return static_cast<std::uint64_t>(n); }

}  // namespace sluice
