#include "models/routing_file.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/files.hpp"
#include "models/route_trace.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kLargestFile = 4ull << 30;

Routing parse(std::string_view text) {
  RoutingReader reader(text);
  Routing out{.shape = reader.shape(), .passes = {}};
  std::uint64_t step = 0;
  for (RoutingLine line; reader.next(line);) {
    if (out.passes.empty() || line.step != step)
      out.passes.push_back({.phase = line.phase, .layers = {}});
    step = line.step;
    std::vector<RoutedLayer>& layers = out.passes.back().layers;
    if (layers.empty() || layers.back().layer != line.layer) layers.push_back({line.layer, {}});
    std::vector<std::int32_t>& ids = layers.back().ids;
    ids.insert(ids.end(), line.experts.begin(), line.experts.end());
  }
  return out;
}

}  // namespace

Routing parse_routing(std::string_view text, const std::string& file) {
  try {
    return is_route_trace(text) ? parse_route_trace(text) : parse(text);
  } catch (const std::invalid_argument& error) {
    throw InputError("{}: {}", file, error.what());
  }
}

Routing read_routing(const std::filesystem::path& path) {
  return parse_routing(read_file(path, kLargestFile), path.string());
}

RoutingFile::RoutingFile(std::filesystem::path path, const RoutingShape& shape)
    : file_(std::move(path)) {
  const std::string head = fmt::format("{} layers={} experts={} per_token={} expert_bytes={}\n{}\n",
                                       kRoutingTitle, shape.layers, shape.experts, shape.per_token,
                                       shape.expert_bytes, kRoutingColumns);
  file_.write(head.data(), head.size());
}

void RoutingFile::routed(const RoutedRows& rows) {
  if (finished_) return;
  if (rows.layer <= last_layer_) ++pass_;
  last_layer_ = rows.layer;
  std::string text;
  for (std::size_t i = 0; i + rows.per_token <= rows.ids.size(); i += rows.per_token)
    text += fmt::format(
        "{},{},{},{},{}\n", pass_, name_of(rows.phase), rows.layer,
        fmt::join(rows.ids.subspan(i, rows.per_token), " "),
        fmt::join(rows.weights.empty() ? rows.weights : rows.weights.subspan(i, rows.per_token),
                  " "));
  file_.write(text.data(), text.size());
}

void RoutingFile::finish() {
  finished_ = true;
  file_.finish();
}

}  // namespace sluice
