// Prompts in, tokens out: prefill, decode, stopping, and the times of both.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/decoder.hpp"

namespace sluice {

struct GenerationRequest {
  std::vector<std::int32_t> prompt;  // at least one id
  SamplingParams sampling;
  std::uint32_t max_new_tokens = 0;  // at least 1
  bool ignore_eos = false;
  bool want_first_logits = false;  // fetched between the first token and the second, on the clock
  // Fed in place of the chosen tokens, one after another; the result still holds what was chosen. A
  // token in whose place another is fed does not stop the sequence.
  std::vector<std::int32_t> force_ids;
};

enum class Finish : std::uint8_t { stop, length, cancelled };

struct GenerationResult {
  std::vector<std::int32_t> tokens;  // the stop id, when one was chosen, is the last
  std::vector<float> first_logits;   // [vocab] when wanted
  Finish finish = Finish::length;
  std::uint64_t first_token_ns = 0;  // from the start of its batch to its first token on the host
  std::uint64_t total_ns = 0;        // ... to its last
};

struct GenerationTimes {
  std::uint64_t prefill_ns = 0;  // from a batch's start to its first tokens, summed over batches
  std::uint64_t decode_ns = 0;   // from the first tokens to the last, summed over batches
  std::uint64_t prompt_tokens = 0;
  std::uint64_t decode_passes = 0;   // all that were enqueued
  std::uint64_t surplus_passes = 0;  // of those: enqueued before the host saw that nothing was left
};

class Generator {
 public:
  // `on_token(request, token)` is called in order for every token that counts; returning false
  // cancels that request.
  using OnToken = std::function<bool(std::size_t request, std::int32_t token)>;

  // References must outlive the generator. Throws InputError for stop ids that cannot be.
  Generator(IDevice& device, Decoder& decoder, ILayerProvider& provider,
            std::vector<std::int32_t> stop_ids);

  // Runs the requests in order, `batch` at a time. The host awaits a batch's first tokens, then runs
  // ahead of the device by Decoder::kPassesAhead passes, never past max_new_tokens; tokens chosen
  // after a stop are left out of results and figures. A sequence that has ended leaves its batch.
  // Throws InputError, before anything runs, for a request that cannot be: no prompt, no new tokens,
  // more of both than the context, an id beyond the vocabulary, sampling parameters out of range.
  std::vector<GenerationResult> run(std::span<const GenerationRequest> requests,
                                    std::uint32_t batch, const OnToken& on_token = {});
  const GenerationTimes& times() const { return times_; }  // of the last run

 private:
  class Batch;

  IDevice& device_;
  Decoder& decoder_;
  ILayerProvider& provider_;
  std::vector<std::int32_t> stop_ids_;
  GenerationTimes times_;
};

}  // namespace sluice
