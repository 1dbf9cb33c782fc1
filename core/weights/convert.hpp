// Casts of arrays between the element types.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace sluice {

// Writes `n` elements of type `to_type` to `to` from `n` elements of type `from_type`. Narrowing
// rounds as core/float16.hpp says; bf16 to f16 and back go through f32, which is exact. The arrays
// may not overlap and need no alignment.
void convert(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::uint64_t n);

}  // namespace sluice
