// The known names nearest to a mistyped one, for messages.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Letters to insert, delete, replace or swap with their neighbour to get from one to the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// At most `count` of `known`, nearest first: those a few letters away, and those that `wrong` is
// the beginning of.
std::vector<std::string> nearest_names(std::string_view wrong, std::span<const std::string> known,
                                       std::size_t count = 3);

// " (did you mean 'a' or 'b'?)", or "" when no known name is near.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> known);

}  // namespace sluice
