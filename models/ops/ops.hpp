// Puts a decoder's operations on a stream: each with the memory it reads and writes, its bytes and
// its floating-point operations, whatever the device.
#pragma once
#include <memory>
#include <span>

#include "core/device/device.hpp"
#include "core/engine/layer_provider.hpp"
#include "models/ops/kernels.hpp"

namespace sluice {

// What expert_pairs reads beside its arguments' rows.
struct ExpertReads {
  std::uint32_t experts = 0;     // of the layer: entries of the table
  std::span<const Range> slabs;  // of the experts in `which`
  // For the operation's bytes and floating-point operations: pairs that are computed, and of how many
  // experts. Where the host does not know the router's choice, the most that there can be.
  std::uint32_t pairs = 0, chosen = 0;
};

// Owns the kernels: it must outlive what it has put on the stream.
class Ops {
 public:
  // With the device's own kernels, or with `kernels`.
  Ops(IDevice& device, StreamId stream);
  Ops(IDevice& device, StreamId stream, std::unique_ptr<IKernels> kernels);

  IDevice& device() const { return device_; }
  StreamId stream() const { return stream_; }

  // `weights` is the slab that the arguments' weight pointers lie in; it is declared as read.
  void embed(const EmbedArgs& args);
  void rms_norm(const RmsNormArgs& args, const Weights& weights);
  void linear(const LinearArgs& args, const Weights& weights);
  void rope_store(const RopeStoreArgs& args, const Weights& weights);
  void attention(const AttentionArgs& args);
  void silu_mul(const SiluMulArgs& args);
  void sample(const SampleArgs& args, std::uint32_t sequences);
  void decode_rows(const DecodeRowsArgs& args, std::uint32_t sequences);
  // In place of the parts one after another.
  void norm_linear(const NormLinearArgs& args, const Weights& weights);
  void gated(const GatedArgs& args, const Weights& weights);
  void rope_attention(const RopeAttentionArgs& args, const Weights& weights);

  // Of a layer of experts; see expert_args.hpp.
  void route(const RouteArgs& args);
  void place_experts(const PlaceExpertsArgs& args);
  void expert_pairs(const ExpertPairsArgs& args, const ExpertReads& reads);
  void combine(const CombineArgs& args);
  // In place of the four parts; `weights` is the router's.
  void routed_experts(const RoutedExpertsArgs& args, const Weights& weights,
                      const ExpertReads& reads);
  // `rows`: of x, of sums.
  void gather_rows(const GatherRowsArgs& args, std::uint32_t rows);
  void add_rows(const AddRowsArgs& args, std::uint32_t rows);
  void clear_sums(const ClearSumsArgs& args);
  void add_sums(const AddSumsArgs& args);

  // See IKernels::prepare.
  void prepare(const KernelShapes& shapes);
  // The host's data to the device and back, in stream order; pinned memory on the host's side.
  void upload(void* to, const void* from, std::uint64_t bytes);
  void download(void* to, const void* from, std::uint64_t bytes);

 private:
  IDevice& device_;
  StreamId stream_;
  std::unique_ptr<IKernels> kernels_;
};

}  // namespace sluice
