#include "models/ops/cuda_matmul.hpp"

#include <algorithm>
#include <array>

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

class Layout {
 public:
  Layout(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols) {
    check(cublasLtMatrixLayoutCreate(&layout_, type, rows, cols, static_cast<std::int64_t>(rows)),
          "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

}  // namespace

struct CudaMatmul::Plan {
  cudaDataType_t type;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Plan(cudaDataType_t of) : type(of) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof transposed),
          "cublasLtMatmulDescSetAttribute");
  }
  ~Plan() { cublasLtMatmulDescDestroy(operation); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

CudaMatmul::CudaMatmul(IDevice& device)
    : workspace_(device, Buffer::Where::device, kWorkspaceBytes, "the cuBLASLt workspace") {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}

CudaMatmul::~CudaMatmul() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

CudaMatmul::Plan& CudaMatmul::plan_for(const LinearArgs& args) {
  const std::uint32_t rows = padded(args.rows);
  auto& plan = plans_[{args.type, args.n, args.k, rows}];
  if (plan) return *plan;
  const cudaDataType_t type = args.type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
  auto made = std::make_unique<Plan>(type);
  const Layout weights(type, args.k, args.n), x(type, args.k, rows), out(type, args.n, rows);
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
    throw Error("cuBLASLt has no algorithm for a product of [{}, {}] and [{}, {}]", rows, args.k,
                args.n, args.k);
  made->algorithm = result.algo;
  plan = std::move(made);
  return *plan;
}

void CudaMatmul::operator()(const LinearArgs& args, cudaStream_t stream) {
  const Plan& plan = plan_for(args);
  // cuBLASLt counts columns first: a row-major [rows, k] is its [k, rows].
  const Layout weights(plan.type, args.k, args.n), x(plan.type, args.k, args.rows),
      out(plan.type, args.n, args.rows);
  const float one = 1, zero = 0;
  check(cublasLtMatmul(handle_, plan.operation, &one, args.weight, weights, args.x, x, &zero,
                       args.out, out, args.out, out, &plan.algorithm, workspace_.data(),
                       kWorkspaceBytes, stream),
        "cublasLtMatmul");
}

}  // namespace sluice
