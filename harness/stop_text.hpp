// Ends a text at the first of some strings, without ever showing a part of one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The next piece of the text; returns what can be shown by now: all but a tail that may yet become
  // a stop string, and nothing from one on.
  std::string push(std::string_view piece);
  // The tail, when the text ended without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;  // none is empty
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sluice
