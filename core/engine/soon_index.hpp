// Where a unit stands in the open step's `soon`.
#pragma once
#include <span>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice {

// Steps differ little and most questions are about the nearest units, so nothing is prepared: a
// step's `soon` is read only as far as the questions reach, and each entry at most once.
class SoonIndex {
 public:
  explicit SoonIndex(std::size_t units) : marks_(units) {}

  // `soon` must outlive its use; an empty one ends it.
  void reset(std::span<const UnitId> soon) {
    soon_ = soon;
    read_ = 0;
    ++round_;
  }

  // 1 is the nearest; kNever when it is not there.
  std::uint64_t place_of(UnitId unit) {
    if (unit >= marks_.size()) return kNever;
    if (marks_[unit].round == round_) return marks_[unit].place;
    while (read_ < soon_.size()) {
      const UnitId next = soon_[read_++];
      if (next >= marks_.size() || marks_[next].round == round_) continue;
      marks_[next] = {round_, read_};
      if (next == unit) return read_;
    }
    return kNever;
  }

 private:
  struct Mark {
    std::uint64_t round = 0, place = 0;
  };

  std::vector<Mark> marks_;
  std::span<const UnitId> soon_;
  std::size_t read_ = 0;
  std::uint64_t round_ = 1;  // beyond that of every mark
};

}  // namespace sluice
