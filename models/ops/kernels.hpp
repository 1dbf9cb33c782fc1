// The operations of a decoder, one implementation per kind of device. Every kernel computes a row's
// result from that row alone, in an order fixed by the inner dimension: the same bits in any batch.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/device/device.hpp"
#include "models/ops/expert_args.hpp"
#include "models/ops/kernel_args.hpp"

namespace sluice {

// What a decoder will ask for.
struct KernelShapes {
  DType type = DType::bf16;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> matrices;  // [n, k], but for the head's
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool quantised = false;       // there are weights that are not stored natively
  bool experts = false;         // there are layers of experts
  std::uint32_t rows = 0;       // of one operation, at most
  std::uint32_t sequences = 0;  // of one pass, at most
  std::uint32_t context = 0;
};

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

  virtual void route(const RouteArgs&, NativeStream) const = 0;
  virtual void place_experts(const PlaceExpertsArgs&, NativeStream) const = 0;
  virtual void expert_pairs(const ExpertPairsArgs&, NativeStream) const = 0;
  virtual void combine(const CombineArgs&, NativeStream) const = 0;
  virtual void gather_rows(const GatherRowsArgs&, NativeStream) const = 0;
  virtual void add_rows(const AddRowsArgs&, NativeStream) const = 0;
  virtual void clear_sums(const ClearSumsArgs&, NativeStream) const = 0;
  virtual void add_sums(const AddSumsArgs&, NativeStream) const = 0;

  virtual void norm_linear(const NormLinearArgs& args, NativeStream stream) const {
    rms_norm(args.norm, stream);
    linear(args.linear, stream);
  }
  virtual void gated(const GatedArgs& args, NativeStream stream) const {
    rms_norm(args.norm, stream);
    linear(args.gate_up, stream);
    silu_mul(args.silu, stream);
  }
  virtual void rope_attention(const RopeAttentionArgs& args, NativeStream stream) const {
    rope_store(args.rope, stream);
    attention(args.attention, stream);
  }
  virtual void routed_experts(const RoutedExpertsArgs& args, NativeStream stream) const {
    norm_linear(args.router, stream);
    route(args.route, stream);
    expert_pairs(args.pairs(), stream);
    combine(args.combine(), stream);
  }

  // Before the first pass: chooses algorithms, loads kernels and takes workspace, which the first
  // operations would otherwise wait for. May wait for the device.
  virtual void prepare(const KernelShapes&) {}
};

// Null for a device that does not execute. Workspace comes from `device`, which must outlive them.
std::unique_ptr<IKernels> make_kernels(IDevice& device);

}  // namespace sluice
