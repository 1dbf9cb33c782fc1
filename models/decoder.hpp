// The forward pass of a decoder-only transformer: Llama, Qwen2, Qwen3, and Qwen3 with experts. It
// walks the units in order; where their weights are is the provider's business.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/layer_provider.hpp"
#include "core/weights/weight_store.hpp"
#include "models/config.hpp"
#include "models/ops/kernels.hpp"
#include "models/routing.hpp"

namespace sluice {

// A prompt's tokens go through a unit in pieces of this many rows at most.
inline constexpr std::uint32_t kPrefillChunk = 2048;
// Prompts of up to this many tokens together are taken through the layers at once, each unit read
// once for all of them. A longer prompt is still one pass: its context makes room.
inline constexpr std::uint32_t kPrefillRows = 16384;

struct DecoderLimits {
  std::uint32_t context = 0;    // positions per sequence
  std::uint32_t sequences = 1;  // at once
  // Rows whose logits score() computes at once, where they are more than `sequences`.
  std::uint32_t logit_rows = 1;
  // Results depend on neither:
  std::uint32_t prefill_chunk = kPrefillChunk;
  std::uint32_t prefill_rows = kPrefillRows;
};

// Logits of `count` tokens in a row, the first of which is the `first`-th that was given.
struct LogitRows {
  std::uint32_t first = 0, count = 0;
  std::span<const std::byte> values;  // [count, vocab] of the decoder's type
};
// What it is given is valid until it returns.
using LogitSink = std::function<void(const LogitRows&)>;

// A pass is enqueued, not awaited: only chosen(), logits() and score() wait for the device, and, once
// in each layer of experts, a pass whose router decides what has to be brought. The order
// of calls is start, prefill, decode ..., finish for each sequence; another order throws Error.
class Decoder {
 public:
  // Allocates KV cache and workspace (MemoryLimitError when they do not fit). Throws InputError for
  // more experts than the kernels take, for limits beyond the model's, and for weights packed for
  // another type. References must outlive the decoder. Its steps count from 0, so a provider serves
  // one decoder; one that is fixed must live as long as the decoder is used.
  Decoder(IDevice& device, StreamId compute, const ModelConfig& config, const WeightStore& weights,
          DType dtype, const DecoderLimits& limits, const RoutingHooks& routing = {});
  ~Decoder();  // waits for the compute stream
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Device bytes that a decoder of these limits takes; what a budget of `auto` leaves room for.
  // Per position of context that is the KV cache, 2 x layers x kv_heads x head_dim values, and
  // beside it `hidden` values of each row that a prefill takes through the layers at once.
  static std::uint64_t device_bytes(const ModelConfig& config, DType dtype,
                                    const DecoderLimits& limits);
  // The longest context that the model's positions allow.
  static std::uint32_t max_context(const ModelConfig& config);

  const DecoderLimits& limits() const;
  std::int32_t vocab() const;  // ids are 0 to vocab - 1

  // Gives sequence slot `sequence` a new, empty sequence.
  void start(std::uint32_t sequence, const SamplingParams& sampling);
  // Ends it; its pages may be used again by work enqueued from now on.
  void finish(std::uint32_t sequence);

  // One prompt per sequence, each unit acquired once for all of them (in groups of whole prompts
  // where they are more than DecoderLimits::prefill_rows). Enqueues the choice of each sequence's
  // first token. `last` when no pass follows: nothing is asked for beyond it. Throws InputError for
  // an empty prompt, one longer than the context, and an id that the vocabulary does not have.
  void prefill(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
               std::span<const std::span<const std::int32_t>> prompts, bool last);
  // One more token of each sequence, from the token on the device.
  void decode(ILayerProvider& provider, std::span<const std::uint32_t> sequences, bool last);

  // The logits after each of `tokens`, the bits of those that a prompt ending there has: one pass, each
  // unit acquired once, then the head for a few rows at a time, which `sink` gets in order. Takes
  // place in sequence slot `sequence`, which has no sequence before and after. Throws as prefill() does.
  void score(ILayerProvider& provider, std::uint32_t sequence, std::span<const std::int32_t> tokens,
             bool last, const LogitSink& sink);

  // Tokens that the `back`-th last pass chose, one per sequence of that pass, in its order; 0 is the
  // newest. The host waits for that pass. Kept for the last kPassesAhead + 1 passes, and valid as
  // long. Throws Error where logits were not finite.
  static constexpr std::uint32_t kPassesAhead = 2;
  std::span<const std::int32_t> chosen(std::uint32_t back);
  // Puts `token` in place of what the newest pass chose for `sequence`.
  void force(std::uint32_t sequence, std::int32_t token);
  // The newest pass's logits of one of its sequences, as f32 [vocab]; the host waits.
  std::vector<float> logits(std::uint32_t sequence);
  // Ids that end a sequence; suppressed by SamplingParams::min_new_tokens. At most 64.
  void set_stop_ids(std::span<const std::int32_t> ids);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
