// Where everything lies: a unit's tensors within its slab, in every encoding that it can have, and
// the model as policies see it. Worked out before any byte of weights is read.
#pragma once
#include <array>
#include <vector>

#include "core/weights/tensor_source.hpp"
#include "core/weights/unit_spec.hpp"

namespace sluice {

// Offsets in a slab, bytes.
struct TensorPlace {
  std::uint64_t data = 0;  // values as packed, or codes
  std::uint64_t scales = 0;
  bool quantised = false;  // it is codes; scales lie at `scales`
};

// A native slab has its tensors in their order. A quantised one has the codes and then the scales of
// each matrix (core/weights/encoding.hpp), with what is `joined` as one matrix, and whatever is not
// quantised as it is natively.
class ModelLayout {
 public:
  // Stored types are kept when `dtype` is f32; else tensors of another type are cast to it. Throws
  // InputError where a tensor is missing, has another shape, or joined ones differ in type.
  ModelLayout(ModelPlan plan, const ITensorSource& source, DType dtype);

  const ModelPlan& plan() const { return plan_; }
  // UnitInfo::bytes has each encoding that the unit can have: native alone without a matrix, that and
  // native of what comes quantised. A tied embedding's is the size of the one tensor that it shares.
  ModelView view() const {
    return {units_, order_, plan_.layers, plan_.experts_per_layer, plan_.experts_per_token};
  }
  std::span<const UnitInfo> units() const { return units_; }
  // Of the unit's tensor, by its position in UnitSpec::tensors.
  const TensorPlace& place(UnitId unit, std::size_t tensor, Encoding encoding) const {
    return places_[unit][static_cast<std::size_t>(encoding)][tensor];
  }
  // A matrix of the unit from its first tensor on, with those joined to it.
  std::uint64_t rows_of_matrix(UnitId unit, std::size_t tensor) const;

 private:
  using Places = std::array<std::vector<TensorPlace>, kEncodings>;

  std::uint64_t lay_out(UnitId unit, Encoding encoding);

  ModelPlan plan_;
  std::vector<UnitInfo> units_;
  std::vector<UnitId> order_;
  std::vector<Places> places_;  // index: UnitId
};

}  // namespace sluice
