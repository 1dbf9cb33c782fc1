// The decoder's operations on the processor: the best instruction set it has, all threads.
//
// Results differ between instruction sets in the last bits, as their vectors add in another order;
// they never depend on threads, batch or tiling. Scratch memory belongs to the calling thread and
// the worker threads (a few MiB each), not to the device's arena.
#pragma once
#include <memory>

#include "models/ops/kernels.hpp"

namespace sluice {

// Throws Error where an index leaves its range (a token beyond the vocabulary, a position beyond
// its pages), before anything is written. All pointers are aligned to their element type.
class CpuKernels final : public IKernels {
 public:
  void embed(const EmbedArgs& args, NativeStream) const override;
  void rms_norm(const RmsNormArgs& args, NativeStream) const override;
  void linear(const LinearArgs& args, NativeStream) const override;
  void rope_store(const RopeStoreArgs& args, NativeStream) const override;
  void attention(const AttentionArgs& args, NativeStream) const override;
  void silu_mul(const SiluMulArgs& args, NativeStream) const override;
  void sample(const SampleArgs& args, NativeStream) const override;
  void decode_rows(const DecodeRowsArgs& args, NativeStream) const override;
  void route(const RouteArgs& args, NativeStream) const override;
  void place_experts(const PlaceExpertsArgs& args, NativeStream) const override;
  void expert_pairs(const ExpertPairsArgs& args, NativeStream) const override;
  void combine(const CombineArgs& args, NativeStream) const override;
  void gather_rows(const GatherRowsArgs& args, NativeStream) const override;
  void add_rows(const AddRowsArgs& args, NativeStream) const override;
  void clear_sums(const ClearSumsArgs& args, NativeStream) const override;
  void add_sums(const AddSumsArgs& args, NativeStream) const override;
};

// Throws Error on a processor below the lowest instruction set that the kernels were built for.
std::unique_ptr<IKernels> make_cpu_kernels();

namespace cpu {

// The largest head_dim.
inline constexpr std::uint32_t kMaxHeadDim = 512;

void embed(const EmbedArgs& args);
void rms_norm(const RmsNormArgs& args);
void linear(const LinearArgs& args);
void rope_store(const RopeStoreArgs& args);
void attention(const AttentionArgs& args);
void silu_mul(const SiluMulArgs& args);
void sample(const SampleArgs& args);
void route(const RouteArgs& args);
void expert_pairs(const ExpertPairsArgs& args);
void combine(const CombineArgs& args);
void gather_rows(const GatherRowsArgs& args);
void add_rows(const AddRowsArgs& args);
void clear_sums(const ClearSumsArgs& args);
void add_sums(const AddSumsArgs& args);

}  // namespace cpu
}  // namespace sluice
