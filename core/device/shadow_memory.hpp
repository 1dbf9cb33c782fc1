// Who touched which bytes last: the audit's book on memory.
#pragma once
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "core/device/op.hpp"

namespace sluice {

struct Access {
  StreamId stream = kHostLine;
  std::uint64_t at = 0;  // the stream's own clock then; 0: never
  const char* name = "";
  UnitId unit = kNoUnit;
};

// The last write of some bytes and, since then, the last read of each stream.
struct Shadow {
  Access write;
  std::vector<Access> reads;
};

// A map of disjoint ranges. Ranges are split where accesses meet them, never merged: what is
// accessed repeats itself token by token, so their number is bounded by the distinct ranges in use.
class ShadowMemory {
 public:
  // Calls visit(Range, Shadow&) for consecutive pieces that make up `range`.
  template <typename Visit>
  void for_each(Range range, Visit visit) {
    if (range.size == 0) return;
    const std::uint64_t end = range.begin + range.size;
    split(range.begin);
    split(end);
    std::uint64_t at = range.begin;
    auto next = pieces_.lower_bound(at);
    while (at < end) {
      if (next == pieces_.end() || next->first > at) {
        const std::uint64_t gap_end = next == pieces_.end() ? end : std::min(end, next->first);
        next = pieces_.emplace_hint(next, at, Piece{gap_end - at, {}});
      }
      visit(Range{at, next->second.size}, next->second.shadow);
      at += next->second.size;
      ++next;
    }
  }

  void forget(Range range) {
    split(range.begin);
    split(range.begin + range.size);
    pieces_.erase(pieces_.lower_bound(range.begin), pieces_.lower_bound(range.begin + range.size));
  }

 private:
  struct Piece {
    std::uint64_t size = 0;
    Shadow shadow;
  };

  // Makes `address` a border between pieces.
  void split(std::uint64_t address) {
    auto after = pieces_.upper_bound(address);
    if (after == pieces_.begin()) return;
    const auto piece = std::prev(after);
    const std::uint64_t end = piece->first + piece->second.size;
    if (piece->first == address || end <= address) return;
    pieces_.emplace_hint(after, address, Piece{end - address, piece->second.shadow});
    piece->second.size = address - piece->first;
  }

  std::map<std::uint64_t, Piece> pieces_;  // by begin
};

}  // namespace sluice
