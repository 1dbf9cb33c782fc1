// In which encodings the units of a cell travel and lie on the device, known before its weights are
// packed, so that just those are.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/weights/weight_store.hpp"
#include "harness/prepare.hpp"

namespace sluice {

// Of the reserved policy `resident`.
inline constexpr std::array kResidentParams{
    ParamSpec{"wire", ParamType::text, 0, 0, 0, "the encoding that units are brought in", "native",
              "native|int8|int4"},
    ParamSpec{"resident", ParamType::text, 0, 0, 0,
              "how they lie on the device: as they came (wire), or dequantised (bf16)", "wire",
              "wire|bf16"},
    ParamSpec{"head", ParamType::text, 0, 0, 0, "how the LM head lies on the device", "bf16",
              "bf16|wire"}};

// What `policy`, the cell's, says of each unit, by its id; null: a reserved one's. Throws InputError
// where a unit cannot be had in an encoding, Error where the policy throws.
std::vector<Transfer> transfers_of(const PreparedCell& cell, IOffloadPolicy* policy,
                                   const ModelView& view);

// The encodings that the transfers need stored, by unit.
std::vector<EncodingSet> stored_for(const ModelView& view, const std::vector<Transfer>& transfers);

// A line that is the same for two cells if and only if their kernels read the same weights:
// "1-72 int8 as native, 73 native", by ids of units.
std::string weights_text(const ModelView& view, const std::vector<Transfer>& transfers);

}  // namespace sluice
