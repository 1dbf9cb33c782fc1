// What happens once, before a decoder's first pass.
#pragma once
#include "core/weights/weight_store.hpp"
#include "models/config.hpp"
#include "models/decoder.hpp"
#include "models/ops/ops.hpp"
#include "models/workspace.hpp"

namespace sluice {

// `limits`, where a decoder of this model can have them; else throws InputError.
DecoderLimits checked_limits(const ModelConfig& config, const DecoderLimits& limits);

// Fills the workspace's tables of angles. The host waits.
void upload_rope(Ops& ops, const ModelConfig& config, const DecoderLimits& limits,
                 const WorkspaceLayout& work);

// Of all that the decoder will ask of the kernels.
KernelShapes kernel_shapes(const ModelConfig& config, const WeightStore& weights, DType type,
                           const DecoderLimits& limits);

}  // namespace sluice
