// What is done to the sums of a product before they are stored.
#pragma once
#include "models/ops/cuda_common.cuh"
#include "models/ops/kernel_args.hpp"

namespace sluice {

__device__ inline float with_bias(const LinearArgs& args, std::uint32_t n, float sum) {
  return args.bias ? sum + value_at(args.bias, args.bias_type, n) : sum;
}

// One element of y, its sum in f32, to where it belongs. `before`: the residual's, if there is one.
template <typename T>
__device__ inline void finish(const LinearArgs& args, std::size_t at, std::uint32_t n, float sum,
                              float before) {
  sum = with_bias(args, n, sum);
  if (args.residual)
    static_cast<T*>(args.residual)[at] = from_float<T>(before + rounded<T>(sum));
  else
    static_cast<T*>(args.out)[at] = from_float<T>(sum);
}
template <typename T>
__device__ inline float residual_at(const LinearArgs& args, std::size_t at) {
  return args.residual ? to_float(static_cast<const T*>(args.residual)[at]) : 0.0f;
}

}  // namespace sluice
