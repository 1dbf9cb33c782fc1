#include "core/device/stream_copy.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/catch.hpp"

TEST_CASE("a copy moves its bytes and no others, however it lies") {
  constexpr std::byte kOutside{0xEE};
  constexpr std::uint64_t kMargin = 128;
  const std::uint64_t small = 64 << 10;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, small - 1, small, small + 1,
        small + 63, small + 64, 3 * small + 17}) {
    std::vector<std::byte> from(bytes + 2 * kMargin), to(bytes + 2 * kMargin);
    for (std::size_t i = 0; i < from.size(); ++i)
      from[i] = static_cast<std::byte>(i * 167 + i / 251);
    for (const std::uint64_t from_at : {0, 1, 16, 63})
      for (const std::uint64_t to_at : {0, 1, 16, 48, 63, 64}) {
        CAPTURE(bytes, from_at, to_at);
        std::fill(to.begin(), to.end(), kOutside);
        sluice::stream_copy(to.data() + to_at, from.data() + from_at, bytes);
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(to_at);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        const auto outside = [&](std::byte b) { return b == kOutside; };
        CHECK(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(from_at)));
        CHECK(std::all_of(to.begin(), begin, outside));
        CHECK(std::all_of(end, to.end(), outside));
      }
  }
}
