// A checkpoint that holds a layer's experts in two tensors, as newer ones may:
//   PREFIX.experts.gate_up_proj  [experts, 2 x width, hidden]: of each its gate, then its up
//   PREFIX.experts.down_proj     [experts, hidden, width]
// Gives each expert's matrices out under the names that they have where they are apart:
// PREFIX.experts.N.gate_proj.weight, and so on.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/weights/checkpoint.hpp"
#include "core/weights/tensor_source.hpp"

namespace sluice {

class FusedExperts final : public ITensorSource {
 public:
  explicit FusedExperts(std::unique_ptr<Checkpoint> checkpoint);
  static bool are_in(const Checkpoint& checkpoint);

  DType stored_type(const TensorSpec& tensor) const override;
  bool has(const std::string& name) const override;
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override;
  std::string describe() const override { return checkpoint_->describe(); }

  // Of all tensors, those of the experts one by one.
  std::vector<std::string> names() const;

 private:
  // Where a matrix lies: the `part`-th of `parts` in each expert's share of a tensor.
  struct Place {
    std::string fused;
    std::uint64_t expert = 0, part = 0, parts = 1;
  };
  std::optional<Place> place_of(const std::string& name) const;
  std::uint64_t experts_in(const std::string& fused) const;

  std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace sluice
