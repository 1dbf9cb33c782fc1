// Fills slabs, or places of single matrices, from a source, with as many threads as there are.
#pragma once
#include <functional>
#include <span>

#include "core/weights/slab_layout.hpp"

namespace sluice {

// A slab to be filled.
struct SlabToFill {
  UnitId unit = 0;
  Encoding encoding = Encoding::native;
  std::byte* data = nullptr;
};

// `progress` is told the bytes written so far and their total, on the caller's thread. Throws what
// the source throws, and InputError for a matrix that cannot be quantised.
void pack_slabs(const ModelLayout& layout, std::span<const SlabToFill> slabs,
                const ITensorSource& source, unsigned threads,
                const std::function<void(std::uint64_t, std::uint64_t)>& progress);

// A matrix to be quantised; its codes and scales as core/weights/encoding.hpp lays them out.
struct MatrixToFill {
  const TensorSpec* tensor = nullptr;
  Encoding encoding = Encoding::int8;
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
};

// The same for these.
void pack_matrices(std::span<const MatrixToFill> matrices, const ITensorSource& source,
                   unsigned threads,
                   const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace sluice
