#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/device/cuda_error.hpp"
#include "core/weights/cuda_dequantise.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {
namespace {

constexpr unsigned kThreads = 256;
// Of each part: many enough that memory is busy, few enough that a small part costs little.
constexpr unsigned kBlocks = 1024;
constexpr std::uint64_t kPieceBytes = 16;  // of codes that a thread turns at a time

__device__ void store(void* to, DType type, std::uint64_t i, float value) {
  switch (type) {
    case DType::f32: static_cast<float*>(to)[i] = value; return;
    case DType::bf16: static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(value); return;
    case DType::f16: static_cast<__half*>(to)[i] = __float2half_rn(value); return;
  }
}

__device__ float f16_at(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

// Eight neighbours, whose place is a multiple of 8 in a row of `k`: as one store where rows are whole
// multiples of it and the values take 16 bytes.
__device__ void store_eight(const DequantisePart& part, std::uint64_t row, std::uint64_t first,
                            const float (&values)[8]) {
  const std::uint64_t at = row * part.k + first;
  if (part.k % 8 != 0 || part.type == DType::f32) {
    for (std::uint64_t i = 0; i < 8 && first + i < part.k; ++i)
      store(part.to, part.type, at + i, values[i]);
    return;
  }
  if (first >= part.k) return;
  alignas(16) std::uint16_t bits[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) store(bits, part.type, i, values[i]);
  *reinterpret_cast<uint4*>(part.to + at * sizeof(std::uint16_t)) =
      *reinterpret_cast<const uint4*>(bits);
}

__device__ void from_int8(const DequantisePart& part, std::uint64_t row, std::uint64_t first,
                          const uint4& piece) {
  const float scale = reinterpret_cast<const float*>(part.scales)[row];
  const auto* const codes = reinterpret_cast<const std::int8_t*>(&piece);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = scale * float(codes[half * 8 + i]);
    store_eight(part, row, first + half * 8, values);
  }
}

__device__ void from_int4(const DequantisePart& part, std::uint64_t row, std::uint64_t first,
                          const uint4& piece) {
  const auto* const groups = reinterpret_cast<const GroupScale*>(
      part.scales + row * scale_row_bytes(Encoding::int4, part.k));
  // What lies behind a row's end has no group; its values are not stored.
  const GroupScale group = groups[min(first, part.k - 1) / kGroupWeights];
  const float scale = f16_at(group.scale), zero = f16_at(group.zero);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(&piece);
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = scale * (float(code_in_word(words[word], i)) - zero);
    store_eight(part, row, first + word * 8, values);
  }
}

__global__ void __launch_bounds__(kThreads) dequantise_kernel(const DequantiseArgs args) {
  const DequantisePart& part = args.parts[blockIdx.y];
  const std::uint64_t begin = blockIdx.x * std::uint64_t{kThreads} + threadIdx.x;
  const std::uint64_t stride = gridDim.x * std::uint64_t{kThreads};
  if (part.encoding == Encoding::native) {
    for (std::uint64_t i = begin; i < part.k; i += stride) part.to[i] = part.from[i];
    return;
  }
  const std::uint64_t row_pieces = code_row_bytes(part.encoding, part.k) / kPieceBytes;
  const std::uint64_t piece_weights =
      part.encoding == Encoding::int4 ? 2 * kPieceBytes : kPieceBytes;
  const auto* const pieces = reinterpret_cast<const uint4*>(part.from);
  for (std::uint64_t i = begin; i < part.rows * row_pieces; i += stride) {
    const std::uint64_t row = i / row_pieces, first = i % row_pieces * piece_weights;
    if (part.encoding == Encoding::int4)
      from_int4(part, row, first, pieces[i]);
    else
      from_int8(part, row, first, pieces[i]);
  }
}

}  // namespace

void cuda_dequantise(const DequantiseArgs& args, NativeStream stream) {
  if (args.count == 0) return;
  dequantise_kernel<<<dim3(kBlocks, args.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      args);
  SLUICE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace sluice
