// Scalars as a person writes them, to exact values. All return nothing for what is not one.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// An integer, or one that does not fit 64 bits (then `overflow` is set).
struct ReadInteger {
  std::int64_t value = 0;
  bool overflow = false;
};
std::optional<ReadInteger> read_integer(std::string_view text);

// A finite decimal number.
std::optional<double> read_real(std::string_view text);
// `true` or `false`, nothing else.
std::optional<bool> read_bool(std::string_view text);
// Bytes: a number, optionally of B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of
// 1024), with or without a space: 8GiB, 1.5 GiB, 512MiB, 6e9. Rounded to whole bytes.
std::optional<std::uint64_t> read_size(std::string_view text);
// Token ids separated by commas or spaces.
std::optional<std::vector<std::int32_t>> read_ids(std::string_view text);

bool looks_like_number(std::string_view text);

// "1.50 GiB", "640 B": for messages and tables.
std::string format_bytes(std::uint64_t bytes);

}  // namespace sluice
