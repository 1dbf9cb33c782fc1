// The operations of a decoder, one implementation per kind of device. Every kernel computes a row's
// result from that row alone, in an order fixed by the inner dimension: the same bits in any batch.
#pragma once
#include <memory>

#include "core/device/device.hpp"
#include "models/ops/kernel_args.hpp"

namespace sluice {

class IKernels {
 public:
  virtual ~IKernels() = default;
  virtual void embed(const EmbedArgs&, NativeStream) const = 0;
  virtual void rms_norm(const RmsNormArgs&, NativeStream) const = 0;
  virtual void linear(const LinearArgs&, NativeStream) const = 0;
  virtual void rope_store(const RopeStoreArgs&, NativeStream) const = 0;
  virtual void attention(const AttentionArgs&, NativeStream) const = 0;
  virtual void silu_mul(const SiluMulArgs&, NativeStream) const = 0;
  virtual void sample(const SampleArgs&, NativeStream) const = 0;
  virtual void decode_rows(const DecodeRowsArgs&, NativeStream) const = 0;
};

// Null for a device that does not execute. Workspace comes from `device`, which must outlive them.
std::unique_ptr<IKernels> make_kernels(IDevice& device);

}  // namespace sluice
