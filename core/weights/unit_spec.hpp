// What a model is made of, before any byte is read: its units and the tensors of each.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "sluice/unit.hpp"

namespace sluice {

struct TensorSpec {
  std::string name;                  // in the checkpoint
  std::vector<std::uint64_t> shape;  // row-major: {out, in} of a matrix
  bool joined = false;       // lies right behind the tensor before it and has its type: read as one
  bool is_matrix = false;    // may be quantised: norms, biases, router and embedding may not
  DType dtype = DType::f32;  // as packed natively; set where the slab is laid out

  std::uint64_t elements() const {
    std::uint64_t n = 1;
    for (std::uint64_t d : shape) n *= d;
    return n;
  }
};

struct UnitSpec {
  UnitKind kind = UnitKind::attention;
  std::int32_t layer = 0;
  std::int32_t expert = -1;
  // In slab order, matrices first. Tensors start at multiples of 16 bytes, but for those that are
  // `joined` to the one before (q, k, v; gate, up); the sizes in use need no padding.
  std::vector<TensorSpec> tensors;
  // A tied embedding has no slab of its own: its one tensor is the first of this unit.
  std::optional<UnitId> shares;
};

// A model's units in the order of one token's walk: embedding, the layers, head.
struct ModelPlan {
  std::vector<UnitSpec> units;
  std::int32_t layers = 0;
  std::int32_t experts_per_layer = 0;
  std::int32_t experts_per_token = 0;
};

}  // namespace sluice
