#include "core/nearest.hpp"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// A third of the letters may be wrong, but at least one.
bool is_near(std::size_t distance, std::string_view a, std::string_view b) {
  return distance <= std::max<std::size_t>(1, std::max(a.size(), b.size()) / 3);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: for the first i-2, i-1 and i letters of `a`.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::vector<std::string> nearest_names(std::string_view wrong, std::span<const std::string> known,
                                       std::size_t count) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(wrong, name);
    if (is_near(distance, wrong, name))
      near.emplace_back(distance, name);
    else if (wrong.size() >= 3 && name.starts_with(wrong))
      near.emplace_back(name.size() - wrong.size(), name);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(count, near.size()); ++i)
    names.push_back(std::move(near[i].second));
  return names;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string> known) {
  std::string text;
  for (const std::string& name : nearest_names(wrong, known))
    text += (text.empty() ? " (did you mean '" : " or '") + name + "'";
  return text.empty() ? text : text + "?)";
}

}  // namespace sluice
