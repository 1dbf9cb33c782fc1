// Rows of weights whose weights are read one by one, whatever the encoding and the type: for what the
// tensor cores' kernels do not take.
#pragma once
#include "core/weights/encoding.hpp"
#include "models/ops/cuda_common.cuh"

namespace sluice {

template <typename W>
struct PlainRow {
  const W* weights = nullptr;
  __device__ PlainRow(const StoredMatrix& m, std::size_t n)
      : weights(reinterpret_cast<const W*>(m.weight) + n * m.k) {}
  __device__ float at(std::uint32_t i) const { return to_float(weights[i]); }
};
struct Int8Row {
  const std::int8_t* codes = nullptr;
  float scale = 0;
  __device__ Int8Row(const StoredMatrix& m, std::size_t n)
      : codes(reinterpret_cast<const std::int8_t*>(m.weight) +
              n * code_row_bytes(Encoding::int8, m.k)),
        scale(reinterpret_cast<const float*>(m.scales)[n]) {}
  __device__ float at(std::uint32_t i) const { return scale * float(codes[i]); }
};
struct Int4Row {
  const uint32_t* words = nullptr;
  const GroupScale* groups = nullptr;
  __device__ Int4Row(const StoredMatrix& m, std::size_t n)
      : words(
            reinterpret_cast<const uint32_t*>(m.weight + n * code_row_bytes(Encoding::int4, m.k))),
        groups(reinterpret_cast<const GroupScale*>(m.scales +
                                                   n * scale_row_bytes(Encoding::int4, m.k))) {}
  __device__ float at(std::uint32_t i) const {
    const GroupScale group = groups[i / kGroupWeights];
    return __half2float(__ushort_as_half(group.scale)) *
           (float(code_in_word(words[i / 8], i % 8)) - __half2float(__ushort_as_half(group.zero)));
  }
};

template <typename R>
struct OfRow {};

// Calls f with OfRow of the kind of row that encoding and type make.
template <typename F>
void with_weight_row(Encoding encoding, DType type, F f) {
  switch (encoding) {
    case Encoding::native:
      return with_type(type, [&](auto w) { f(OfRow<PlainRow<decltype(w)>>()); });
    case Encoding::int8: return f(OfRow<Int8Row>());
    case Encoding::int4: return f(OfRow<Int4Row>());
  }
}

}  // namespace sluice
