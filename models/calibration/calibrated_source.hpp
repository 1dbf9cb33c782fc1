// A source whose layers' matrices are there in int4 as well, in memory.
#pragma once
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/weights/encoding.hpp"
#include "core/weights/tensor_source.hpp"

namespace sluice {

// Of one matrix, as core/weights/encoding.hpp lays them out.
struct Int4Matrix {
  std::vector<std::byte> codes, scales;
};

class CalibratedSource final : public ITensorSource {
 public:
  // `source` must outlive this.
  explicit CalibratedSource(const ITensorSource& source) : source_(source) {}

  void add(const std::string& name, Int4Matrix matrix) {
    matrices_.insert_or_assign(name, std::move(matrix));
  }

  DType stored_type(const TensorSpec& tensor) const override { return source_.stored_type(tensor); }
  bool has(const std::string& name) const override { return source_.has(name); }
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override {
    source_.read(tensor, first, n, to);
  }
  bool is_quantised(const TensorSpec& tensor, Encoding encoding) const override {
    return encoding == Encoding::int4 && matrices_.contains(tensor.name);
  }
  void read_quantised(const TensorSpec& tensor, Encoding encoding, std::uint64_t first,
                      std::uint64_t rows, std::byte* codes, std::byte* scales) const override {
    const Int4Matrix& matrix = matrices_.at(tensor.name);
    const std::uint64_t code_bytes = code_row_bytes(encoding, tensor.shape[1]);
    const std::uint64_t scale_bytes = scale_row_bytes(encoding, tensor.shape[1]);
    std::memcpy(codes, matrix.codes.data() + first * code_bytes, rows * code_bytes);
    std::memcpy(scales, matrix.scales.data() + first * scale_bytes, rows * scale_bytes);
  }
  std::string describe() const override { return source_.describe(); }

 private:
  const ITensorSource& source_;
  std::map<std::string, Int4Matrix> matrices_;
};

}  // namespace sluice
