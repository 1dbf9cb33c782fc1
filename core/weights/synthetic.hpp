// Random weights of an exact shape: a pure function of seed, tensor name and element index, so the
// same whatever the threads, in memory or written to disk.
#pragma once
#include <cstdint>
#include <string>

#include "core/weights/tensor_source.hpp"

namespace sluice {

class SyntheticWeights final : public ITensorSource {
 public:
  // `name` is the shape's, for records; vectors named *norm* are ones, the rest are uniform with the
  // standard deviation 0.02.
  SyntheticWeights(std::string name, std::uint64_t seed, DType stored);

  DType stored_type(const TensorSpec& tensor) const override;
  bool has(const std::string& name) const override;
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override;
  std::string describe() const override;

 private:
  std::string name_;
  std::uint64_t seed_;
  DType stored_;
};

}  // namespace sluice
