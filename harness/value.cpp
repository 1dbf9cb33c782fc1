#include "harness/value.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace sluice {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the decimal number that `text` begins with; 0: none.
std::size_t number_length(std::string_view text) {
  std::size_t i = 0, digits = 0;
  const auto skip_digits = [&] {
    const std::size_t from = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - from;
  };
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  digits += skip_digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    digits += skip_digits();
  }
  if (digits == 0) return 0;
  const std::size_t mantissa = i;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (skip_digits() == 0) return mantissa;
  }
  return i;
}

struct SizeUnit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<SizeUnit, 9> kSizeUnits{{{"B", 1},
                                              {"kB", 1'000},
                                              {"MB", 1'000'000},
                                              {"GB", 1'000'000'000},
                                              {"TB", 1'000'000'000'000},
                                              {"KiB", 1ull << 10},
                                              {"MiB", 1ull << 20},
                                              {"GiB", 1ull << 30},
                                              {"TiB", 1ull << 40}}};

}  // namespace

std::optional<ReadInteger> read_integer(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && is_digit(text[1])) text.remove_prefix(1);
  ReadInteger out;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  out.overflow = error == std::errc::result_out_of_range;
  return out;
}

std::optional<double> read_real(std::string_view text) {
  if (text.empty() || number_length(text) != text.size()) return std::nullopt;
  const double value = std::strtod(std::string(text).c_str(), nullptr);
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> read_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

std::optional<std::uint64_t> read_size(std::string_view text) {
  const std::size_t length = number_length(text);
  if (length == 0) return std::nullopt;
  const std::string_view number = text.substr(0, length);
  std::string_view unit_name = text.substr(length);
  if (unit_name.starts_with(' ')) unit_name.remove_prefix(1);
  std::uint64_t unit = unit_name.empty() && length == text.size() ? 1 : 0;
  for (const SizeUnit& known : kSizeUnits)
    if (known.name == unit_name) unit = known.bytes;
  if (unit == 0) return std::nullopt;

  // Whole numbers stay exact; others are far below the 64 bits of a long double's mantissa.
  if (const auto whole = read_integer(number); whole && !whole->overflow) {
    if (whole->value < 0) return std::nullopt;
    const auto value = static_cast<std::uint64_t>(whole->value);
    if (value > std::numeric_limits<std::uint64_t>::max() / unit) return std::nullopt;
    return value * unit;
  }
  const long double value =
      std::strtold(std::string(number).c_str(), nullptr) * static_cast<long double>(unit);
  if (!(value >= 0) || value >= 9.2e18L) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(value));
}

std::optional<std::vector<std::int32_t>> read_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t end = std::min(text.find_first_of(", ", i), text.size());
    if (end > i) {
      const auto id = read_integer(text.substr(i, end - i));
      if (!id || id->overflow || id->value < 0 ||
          id->value > std::numeric_limits<std::int32_t>::max())
        return std::nullopt;
      ids.push_back(static_cast<std::int32_t>(id->value));
    }
    i = end + 1;
  }
  return ids;
}

bool looks_like_number(std::string_view text) {
  return !text.empty() && number_length(text) == text.size();
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t i = 0;
  while (value >= 1024 && i + 1 < names.size()) {
    value /= 1024;
    ++i;
  }
  return fmt::format("{:.2f} {}", value, names[i]);
}

}  // namespace sluice
