// Any text as a file of routing: refused, or passes that hold together.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "models/routing_file.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const sluice::Routing& routing) {
  const sluice::RoutingShape& shape = routing.shape;
  require(shape.layers > 0 && shape.per_token > 0 && shape.per_token <= shape.experts);
  for (const sluice::RoutedPass& pass : routing.passes) {
    std::int32_t last = -1;
    for (const sluice::RoutedLayer& layer : pass.layers) {
      require(layer.layer > last && layer.layer < shape.layers);
      last = layer.layer;
      require(!layer.ids.empty());
      for (const std::int32_t id : layer.ids) require(id >= 0 && id < shape.experts);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(sluice::parse_routing({reinterpret_cast<const char*>(data), size}, "routing.csv"));
  } catch (const sluice::InputError&) {
  }
  return 0;
}
