#include "tests/device/trace_file.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"

namespace sluice::test {
namespace {

std::uint64_t ns_of(const nlohmann::json& micros) {
  REQUIRE(micros.is_number());
  const double ns = std::round(micros.get<double>() * 1000);
  REQUIRE(ns >= 0);
  return static_cast<std::uint64_t>(ns);
}

void check_nesting(std::vector<TraceSpan> spans) {
  // Of two that begin together the longer is outside.
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  std::vector<std::uint64_t> ends;
  for (const TraceSpan& span : spans) {
    while (!ends.empty() && ends.back() <= span.begin_ns) ends.pop_back();
    CAPTURE(span.track, span.name, span.begin_ns, span.end_ns);
    if (!ends.empty()) REQUIRE(span.end_ns <= ends.back());
    ends.push_back(span.end_ns);
  }
}

bool lies_in(const TraceSpan& span, const TraceSpan& section) {
  return span.begin_ns >= section.begin_ns && span.end_ns <= section.end_ns;
}

}  // namespace

TraceFile::TraceFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<std::uint64_t, std::vector<TraceSpan>> by_track;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      if (event.at("name") != "thread_name") continue;
      const auto track = event.at("tid").get<std::size_t>();
      tracks.resize(std::max(tracks.size(), track + 1));
      tracks[track] = event.at("args").at("name").get<std::string>();
      continue;
    }
    REQUIRE(event.at("ph") == "X");
    const nlohmann::json& args = event.at("args");
    TraceSpan span{event.at("tid").get<std::uint64_t>(),
                   event.at("name").get<std::string>(),
                   event.at("cat").get<std::string>(),
                   args.value("unit", std::string()),
                   ns_of(event.at("ts")),
                   0,
                   args.value("bytes", std::uint64_t{0}),
                   args.value("flops", std::uint64_t{0})};
    span.end_ns = span.begin_ns + ns_of(event.at("dur"));
    REQUIRE(span.track < tracks.size());
    by_track[span.track].push_back(span);
    spans.push_back(std::move(span));
  }
  for (auto& [track, of_track] : by_track) check_nesting(std::move(of_track));
}

const TraceSpan* TraceFile::section(const std::string& name) const {
  for (const TraceSpan& span : spans)
    if (span.category == "section" && span.name == name) return &span;
  return nullptr;
}

std::uint64_t TraceFile::bytes(const std::string& name, const TraceSpan& section) const {
  std::uint64_t sum = 0;
  for (const TraceSpan& span : spans)
    if (span.name == name && lies_in(span, section)) sum += span.bytes;
  return sum;
}

std::uint64_t TraceFile::stall_ns(const TraceSpan& section) const {
  std::uint64_t sum = 0;
  for (const TraceSpan& span : spans)
    if (span.category == "stall" && lies_in(span, section)) sum += span.end_ns - span.begin_ns;
  return sum;
}

}  // namespace sluice::test
