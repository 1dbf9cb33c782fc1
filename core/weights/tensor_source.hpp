// Where tensors come from: a checkpoint on disk, or a seed.
#pragma once
#include <cstddef>
#include <optional>
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
  // Whether read_quantised() gives this matrix in `encoding` without loss: it is stored so.
  virtual bool is_quantised(const TensorSpec&, Encoding) const { return false; }
  // What a matrix comes in that was quantised by others. It can be had so or as the values that this
  // stands for; quantising those once more, in another encoding, is refused.
  virtual std::optional<Encoding> quantised_as(const TensorSpec&) const { return std::nullopt; }
  // Writes the codes and scales of `rows` rows from `first` on, laid out as core/weights/encoding.hpp
  // says. Called from several threads at once, only where is_quantised().
  virtual void read_quantised(const TensorSpec&, Encoding, std::uint64_t first, std::uint64_t rows,
                              std::byte* codes, std::byte* scales) const {
    static_cast<void>(first);
    static_cast<void>(rows);
    static_cast<void>(codes);
    static_cast<void>(scales);
  }
  // A line for records: the path and a fingerprint, or the shape's name and the seed.
  virtual std::string describe() const = 0;
};

}  // namespace sluice
