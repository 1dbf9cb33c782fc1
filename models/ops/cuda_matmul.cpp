#include "models/ops/cuda_matmul.hpp"

#include <algorithm>
#include <array>

#include "core/device/cuda_error.hpp"

namespace sluice {
namespace {

// What NVIDIA recommends for Hopper; earlier architectures use a part of it.
constexpr std::uint64_t kWorkspaceBytes = 32ull << 20;
constexpr std::array<std::uint32_t, 4> kPaddedRows{64, 256, 1024, 2048};

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error("{} failed: {}", call, cublasLtGetStatusString(status));
}

std::uint32_t padded(std::uint32_t rows) {
  const auto fits = std::ranges::lower_bound(kPaddedRows, rows);
  return fits == kPaddedRows.end() ? rows : *fits;
}

class MatrixLayout {
 public:
  MatrixLayout(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols)
      : MatrixLayout(type, rows, cols, rows) {}
  MatrixLayout(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols, std::uint64_t stride) {
    check(cublasLtMatrixLayoutCreate(&layout_, type, rows, cols, static_cast<std::int64_t>(stride)),
          "cublasLtMatrixLayoutCreate");
  }
  ~MatrixLayout() { cublasLtMatrixLayoutDestroy(layout_); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

}  // namespace

struct CudaMatmul::Plan {
  cudaDataType_t type;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Plan(cudaDataType_t of, bool biased) : type(of) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof transposed),
          "cublasLtMatmulDescSetAttribute");
    if (!biased) return;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue),
          "cublasLtMatmulDescSetAttribute");
  }
  ~Plan() { cublasLtMatmulDescDestroy(operation); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

CudaMatmul::CudaMatmul(IDevice& device)
    : device_(device),
      workspace_(device, Buffer::Where::device, kWorkspaceBytes, "the cuBLASLt workspace") {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}

CudaMatmul::~CudaMatmul() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

CudaMatmul::Plan& CudaMatmul::plan_for(DType dtype, bool biased, std::uint32_t n, std::uint32_t k,
                                       std::uint32_t rows) {
  rows = padded(rows);
  auto& plan = plans_[{dtype, biased, n, k, rows}];
  if (plan) return *plan;
  const cudaDataType_t type = dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
  auto made = std::make_unique<Plan>(type, biased);
  const MatrixLayout weights(type, k, n), x(type, k, rows), out(type, n, rows);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof kWorkspaceBytes),
        "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, made->operation, weights, x, out, out, preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0)
    throw Error("cuBLASLt has no algorithm for a product of [{}, {}] and [{}, {}]", rows, k, n, k);
  made->algorithm = result.algo;
  plan = std::move(made);
  return *plan;
}

void CudaMatmul::multiply(const Plan& plan, const LinearArgs& args, std::uint32_t out_stride,
                          cudaStream_t stream) {
  // cuBLASLt counts columns first: a row-major [rows, k] is its [k, rows].
  const MatrixLayout a(plan.type, args.k, args.n), b(plan.type, args.k, args.rows),
      c(plan.type, args.n, args.rows, out_stride);
  if (args.bias)
    check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                         &args.bias, sizeof args.bias),
          "cublasLtMatmulDescSetAttribute");
  const float one = 1, zero = 0;
  check(cublasLtMatmul(handle_, plan.operation, &one, args.weight, a, args.x, b, &zero, args.out, c,
                       args.out, c, &plan.algorithm, workspace_.data(), kWorkspaceBytes, stream),
        "cublasLtMatmul");
}

void CudaMatmul::operator()(const LinearArgs& args, std::uint32_t out_stride, cudaStream_t stream) {
  multiply(plan_for(args.type, args.bias != nullptr, args.n, args.k, args.rows), args, out_stride,
           stream);
}

// A kernel is loaded when it first runs; a corner of the product does for that.
void CudaMatmul::prepare(DType type, std::uint32_t n, std::uint32_t k, std::uint32_t rows,
                         cudaStream_t stream) {
  const std::uint32_t corner_n = std::min(n, 256u), corner_k = std::min(k, 512u);
  const std::uint64_t weights = std::uint64_t{corner_n} * corner_k * size_of(type);
  const std::uint64_t x = std::uint64_t{padded(rows)} * corner_k * size_of(type);
  const std::uint64_t out = std::uint64_t{padded(rows)} * corner_n * size_of(type);
  const Buffer scratch(device_, Buffer::Where::device, weights + x + out,
                       "a product to begin with");
  SLUICE_CUDA_CHECK(cudaMemsetAsync(scratch.data(), 0, scratch.bytes(), stream));
  const auto run = [&](std::uint32_t size) {
    multiply(plan_for(type, false, n, k, size),
             {.x = scratch.data() + weights,
              .weight = scratch.data(),
              .out = scratch.data() + weights + x,
              .type = type,
              .rows = size,
              .n = corner_n,
              .k = corner_k},
             corner_n, stream);
  };
  for (const std::uint32_t size : kPaddedRows)
    if (size < padded(rows)) run(size);
  run(padded(rows));
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

}  // namespace sluice
