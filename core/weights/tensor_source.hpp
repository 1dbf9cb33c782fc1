// Where tensors come from: a checkpoint on disk, or a seed.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "core/weights/unit_spec.hpp"

namespace sluice {

class ITensorSource {
 public:
  virtual ~ITensorSource() = default;
  // The stored type. Throws InputError, naming file and tensor, when there is no such tensor or its
  // shape is not `tensor.shape`.
  virtual DType stored_type(const TensorSpec& tensor) const = 0;
  virtual bool has(const std::string& name) const = 0;
  // Writes elements [first, first + n) in the stored type, n * size_of(stored) bytes. Called from
  // several threads at once.
  virtual void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
                    std::byte* to) const = 0;
  // A line for records: the path and a fingerprint, or the shape's name and the seed.
  virtual std::string describe() const = 0;
};

}  // namespace sluice
