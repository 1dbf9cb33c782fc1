#include "harness/stop_text.hpp"

#include <algorithm>
#include <utility>

namespace sluice {

std::string StopText::push(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, "");
  }
  std::size_t keep = 0;  // the longest tail that a stop string begins with
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopText::finish() { return std::exchange(held_, ""); }

}  // namespace sluice
