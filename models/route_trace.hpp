// Routing as BigMoeOnEdge writes it down ("# route_trace v1"): a line per expert of a token.
#pragma once
#include <string_view>

#include "models/routing_file.hpp"

namespace sluice {

bool is_route_trace(std::string_view text);

// The prefill of a turn becomes one pass, each decoded token another; a token's experts keep the trace's
// order, the best one first. Throws std::invalid_argument that begins with the line, as RoutingReader
// does.
Routing parse_route_trace(std::string_view text);

}  // namespace sluice
