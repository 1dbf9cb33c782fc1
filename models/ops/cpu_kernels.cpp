#include "models/ops/cpu_kernels.hpp"

#include "models/ops/cpu_targets.hpp"
//
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "models/ops/cpu_pages.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kAnyContext = std::numeric_limits<std::uint64_t>::max();

void check_experts(const std::int32_t* ids, std::size_t count, std::uint32_t experts) {
  for (std::size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || static_cast<std::uint32_t>(ids[i]) >= experts)
      throw Error("pair {} is of expert {}: the layer has {}", i, ids[i], experts);
  }
}

}  // namespace

void CpuKernels::embed(const EmbedArgs& args, NativeStream) const {
  for (std::uint32_t r = 0; r < args.rows.count; ++r) {
    const std::int32_t token = args.rows.tokens[r];
    if (token < 0 || static_cast<std::uint32_t>(token) >= args.vocab) {
      throw Error("row {} is token {}: the vocabulary has {}", r, token, args.vocab);
    }
  }
  cpu::embed(args);
}

void CpuKernels::rms_norm(const RmsNormArgs& args, NativeStream) const { cpu::rms_norm(args); }

void CpuKernels::linear(const LinearArgs& args, NativeStream) const { cpu::linear(args); }

void CpuKernels::rope_store(const RopeStoreArgs& args, NativeStream) const {
  cpu::check_pages(args.kv, args.rows, args.type, args.context);
  cpu::rope_store(args);
}

void CpuKernels::attention(const AttentionArgs& args, NativeStream) const {
  cpu::check_pages(args.kv, args.rows, args.type, kAnyContext);
  if (args.kv.kv_heads == 0 || args.heads % args.kv.kv_heads != 0) {
    throw Error("{} query heads cannot share {} key heads evenly", args.heads, args.kv.kv_heads);
  }
  cpu::attention(args);
}

void CpuKernels::silu_mul(const SiluMulArgs& args, NativeStream) const { cpu::silu_mul(args); }

void CpuKernels::sample(const SampleArgs& args, NativeStream) const { cpu::sample(args); }

void CpuKernels::decode_rows(const DecodeRowsArgs& args, NativeStream) const {
  for (std::uint32_t r = 0; r < args.count; ++r) {
    const std::int32_t sequence = args.active[r];
    args.tokens[r] = args.next_tokens[sequence];
    args.sequences[r] = sequence;
    args.positions[r] = args.lengths[sequence];
  }
}

void CpuKernels::route(const RouteArgs& args, NativeStream) const {
  if (args.experts == 0 || args.experts > kMaxExperts || args.per_token == 0 ||
      args.per_token > std::min(kMaxExpertsPerToken, args.experts)) {
    throw Error("{} of {} experts cannot be chosen: the kernels take up to {} of up to {}",
                args.per_token, args.experts, kMaxExpertsPerToken, kMaxExperts);
  }
  if (args.given) check_experts(args.given, args.rows * std::size_t{args.per_token}, args.experts);
  cpu::route(args);
}

void CpuKernels::place_experts(const PlaceExpertsArgs& args, NativeStream) const {
  for (std::uint32_t i = 0; i < args.count; ++i) args.table[args.ids[i]] = args.slabs[i];
}

void CpuKernels::expert_pairs(const ExpertPairsArgs& args, NativeStream) const {
  check_experts(args.ids, args.rows * std::size_t{args.per_token}, kMaxExperts);
  cpu::expert_pairs(args);
}

void CpuKernels::combine(const CombineArgs& args, NativeStream) const { cpu::combine(args); }

void CpuKernels::gather_rows(const GatherRowsArgs& args, NativeStream) const {
  cpu::gather_rows(args);
}

void CpuKernels::add_rows(const AddRowsArgs& args, NativeStream) const { cpu::add_rows(args); }

void CpuKernels::clear_sums(const ClearSumsArgs& args, NativeStream) const {
  cpu::clear_sums(args);
}

void CpuKernels::add_sums(const AddSumsArgs& args, NativeStream) const { cpu::add_sums(args); }

std::unique_ptr<IKernels> make_cpu_kernels() {
  if ((hwy::SupportedTargets() & HWY_TARGETS) == 0) {
    throw Error("the CPU kernels need a processor with {} or better",
                hwy::TargetName(HWY_STATIC_TARGET));
  }
  return std::make_unique<CpuKernels>();
}

}  // namespace sluice
