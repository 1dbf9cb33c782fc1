#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "models/ops/cpu_kernels.hpp"
#include "models/ops/cpu_types.hpp"
#include "models/ops/philox.hpp"
#include "models/ops/sampling.hpp"

namespace sluice::cpu {
namespace {

struct Workspace {
  std::vector<float> logits;
  Sampler sampler;
};

template <class T>
void widen_all(const void* from, std::size_t at, std::vector<float>& to) {
  const T* logits = static_cast<const T*>(from) + at;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = widen(logits[i]);
}

void load_logits(const SampleArgs& args, std::size_t row, std::vector<float>& to) {
  const std::size_t at = row * args.vocab;
  to.resize(args.vocab);
  switch (args.type) {
    case DType::f32: return widen_all<float>(args.logits, at, to);
    case DType::bf16: return widen_all<Bf16>(args.logits, at, to);
    case DType::f16: return widen_all<F16>(args.logits, at, to);
  }
}

// The first logit that is infinite or not a number.
std::optional<std::size_t> find_not_finite(const std::vector<float>& logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) return i;
  }
  return std::nullopt;
}

// What a row chose, or why it could not.
struct Outcome {
  std::int32_t token = 0;
  std::optional<std::size_t> not_finite;
};

Outcome choose(const SampleArgs& args, std::size_t row) {
  thread_local Workspace workspace;
  load_logits(args, row, workspace.logits);
  if (const auto at = find_not_finite(workspace.logits)) return {0, at};
  const std::int32_t sequence = args.sequences[row];
  const SamplingParams& params = args.params[sequence];
  const std::int32_t generated = args.generated[sequence];
  std::span<const std::int32_t> suppressed;
  if (static_cast<std::uint32_t>(generated) < params.min_new_tokens) {
    suppressed = {args.stop_ids, args.stop_count};
  }
  const double random = uniform(params.seed, static_cast<std::uint64_t>(generated));
  return {workspace.sampler.choose(workspace.logits, params, suppressed, random), std::nullopt};
}

}  // namespace

void sample(const SampleArgs& args) {
  std::vector<Outcome> outcomes(args.rows);
  parallel_for(args.rows, [&](std::size_t row) { outcomes[row] = choose(args, row); });
  for (std::size_t row = 0; row < args.rows; ++row) {
    if (!outcomes[row].not_finite) continue;
    throw Error(
        "the logits of sequence {} at position {} are not finite (the first is token {} of {}): "
        "the model's {} activations overflowed, or its weights are damaged",
        args.sequences[row], args.lengths[args.sequences[row]], *outcomes[row].not_finite,
        args.vocab, name_of(args.type));
  }
  for (std::size_t row = 0; row < args.rows; ++row) {
    const std::int32_t sequence = args.sequences[row];
    args.next_tokens[sequence] = outcomes[row].token;
    args.chosen[row] = outcomes[row].token;
    ++args.lengths[sequence];
    ++args.generated[sequence];
  }
}

}  // namespace sluice::cpu
