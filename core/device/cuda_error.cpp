#include "core/device/cuda_error.hpp"

#include "core/error.hpp"

namespace sluice {

void throw_cuda_error(cudaError_t status, const char* call, const char* file, int line) {
  throw Error("{} at {}:{} failed: {} ({})", call, file, line, cudaGetErrorString(status),
              cudaGetErrorName(status));
}

}  // namespace sluice
