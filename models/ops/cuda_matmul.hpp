// Products of many rows through cuBLASLt: one algorithm per shape, chosen once, its workspace taken
// when the object is made.
#pragma once
#include <cublasLt.h>

#include <map>
#include <tuple>

#include "core/device/device.hpp"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/kernels.hpp"

namespace sluice {

class CudaMatmul {
 public:
  explicit CudaMatmul(IDevice& device);
  ~CudaMatmul();
  CudaMatmul(const CudaMatmul&) = delete;
  CudaMatmul& operator=(const CudaMatmul&) = delete;

  // args.out [rows, n] = x W^T + bias, rounded once to the activation type; weights, bias and
  // activations of one type, bf16 or f16. Rows of `out` lie `out_stride` elements apart. The residual
  // is left to the caller.
  void operator()(const LinearArgs& args, std::uint32_t out_stride, cudaStream_t stream);

  // Chooses the algorithms for products of up to `rows` rows and loads their kernels.
  void prepare(DType type, std::uint32_t n, std::uint32_t k, std::uint32_t rows,
               cudaStream_t stream);

 private:
  struct Plan;
  Plan& plan_for(DType type, bool biased, std::uint32_t n, std::uint32_t k, std::uint32_t rows);

  void multiply(const Plan& plan, const LinearArgs& args, std::uint32_t out_stride,
                cudaStream_t stream);

  IDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  // By type, whether there is a bias, n, k and the rows padded to 64, 256, 1024 or 2048: a few
  // algorithms serve every prompt.
  std::map<std::tuple<DType, bool, std::uint32_t, std::uint32_t, std::uint32_t>,
           std::unique_ptr<Plan>>
      plans_;
};

}  // namespace sluice
