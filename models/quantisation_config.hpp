// How a checkpoint's matrices were quantised, from `quantization_config` in its config.json.
#pragma once
#include <optional>

#include "core/json_node.hpp"
#include "core/weights/quantised_format.hpp"

namespace sluice {

// Of `config`, the outermost object; nothing: they are values. Throws InputError, naming file and
// key, for every way of quantising that is not supported, and says what is.
std::optional<QuantisedFormat> read_quantisation(const JsonNode& config);

}  // namespace sluice
