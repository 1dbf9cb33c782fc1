// A trace read back, and the rules that any must keep.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/device/op.hpp"

namespace sluice::test {

struct TraceSpan {
  std::uint64_t track = 0;
  std::string name, category, unit;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t bytes = 0, flops = 0;
};

struct TraceFile {
  std::vector<std::string> tracks;  // names by number; the host is 0
  std::vector<TraceSpan> spans;

  // Requires JSON, known tracks, no negative times, and spans of a track that lie beside or inside
  // each other.
  explicit TraceFile(const std::filesystem::path& path);

  // Null: there is none.
  const TraceSpan* section(const std::string& name) const;
  // Of spans that begin and end within `section`.
  std::uint64_t bytes(const std::string& name, const TraceSpan& section) const;
  std::uint64_t stall_ns(const TraceSpan& section) const;
};

}  // namespace sluice::test
