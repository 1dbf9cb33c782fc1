// A checkpoint whose matrices come quantised by others: GPTQ, AWQ, int8 of compressed-tensors. What
// lies in the files decides for each matrix; those stored as values stay so, as do biases, norms and
// the embedding.
#pragma once
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/weights/quantised_format.hpp"

namespace sluice {

class QuantisedCheckpoint final : public ITensorSource {
 public:
  // Of type `dtype` are the values that read() gives of a quantised matrix. Throws InputError, file
  // and tensor named, for a part that is missing or wrong, and for a matrix that is there twice. Of
  // the first matrix it reads the first row, so that groups out of order are refused at once.
  QuantisedCheckpoint(std::unique_ptr<Checkpoint> checkpoint, const ModelPlan& plan,
                      QuantisedFormat format, DType dtype);

  DType stored_type(const TensorSpec& tensor) const override;
  bool has(const std::string& name) const override;
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override;
  bool is_quantised(const TensorSpec& tensor, Encoding encoding) const override;
  std::optional<Encoding> quantised_as(const TensorSpec& tensor) const override;
  void read_quantised(const TensorSpec& tensor, Encoding encoding, std::uint64_t first,
                      std::uint64_t rows, std::byte* codes, std::byte* scales) const override;
  std::string describe() const override { return checkpoint_->describe(); }

  // Of all tensors, with MODULE.weight for the parts of a quantised matrix. Left out are biases of
  // them that the model does not have and that are zero: AutoGPTQ writes one for every matrix.
  std::vector<std::string> names() const;

 private:
  bool holds(const TensorSpec& tensor) const {
    return tensor.is_matrix && matrices_.contains(tensor.name);
  }
  void leave_out_bias(const TensorSpec& matrix);

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<IQuantisedFormat> format_;
  DType dtype_;
  std::unordered_set<std::string> matrices_;  // quantised ones
  std::unordered_set<std::string> left_out_;
};

}  // namespace sluice
