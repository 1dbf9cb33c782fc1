#include "core/device/cuda_error.hpp"
#include "core/weights/cuda_dequantise.hpp"

namespace sluice {

void cuda_dequantise(const DequantiseArgs&, NativeStream) {
  throw Error("the CUDA device does not dequantise yet");
}

}  // namespace sluice
