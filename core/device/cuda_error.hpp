// Turns a CUDA status into an exception that names the call, the file and the line.
#pragma once
#include <cuda_runtime.h>

namespace sluice {

void throw_cuda_error(cudaError_t status, const char* call, const char* file, int line);

}  // namespace sluice

#define SLUICE_CUDA_CHECK(call)                                       \
  do {                                                                \
    if (const cudaError_t status_ = (call); status_ != cudaSuccess)   \
      ::sluice::throw_cuda_error(status_, #call, __FILE__, __LINE__); \
  } while (false)
