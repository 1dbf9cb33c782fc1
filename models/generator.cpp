#include "models/generator.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

namespace sluice {
namespace {

void check_ids(std::span<const std::int32_t> ids, std::int32_t vocab, const char* what) {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= vocab)
      throw InputError("{}: there is no token {}; the model's ids are 0 to {}", what, id,
                       vocab - 1);
}

void check_sampling(const SamplingParams& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0)
    throw InputError("a temperature of {} cannot be: 0 is greedy, above it samples",
                     sampling.temperature);
  if (sampling.top_k < 0)
    throw InputError("top_k of {} cannot be: 0 is all, else a number of tokens", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    throw InputError("top_p of {} cannot be: above 0, at most 1", sampling.top_p);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    throw InputError("min_p of {} cannot be: 0 to 1", sampling.min_p);
}

void check(const GenerationRequest& request, const Decoder& decoder) {
  if (request.prompt.empty()) throw InputError("a prompt has no tokens; at least one is needed");
  if (request.max_new_tokens == 0) throw InputError("max_new_tokens is 0; at least 1 is needed");
  const std::uint64_t positions = request.prompt.size() + std::uint64_t{request.max_new_tokens};
  if (positions > decoder.limits().context)
    throw InputError("a prompt of {} tokens and {} new ones need {} positions; the context has {}",
                     request.prompt.size(), request.max_new_tokens, positions,
                     decoder.limits().context);
  check_ids(request.prompt, decoder.vocab(), "prompt");
  check_ids(request.force_ids, decoder.vocab(), "force_ids");
  check_sampling(request.sampling);
}

}  // namespace

// One batch of requests: sequence s of the decoder is request first + s.
class Generator::Batch {
 public:
  Batch(Generator& owner, std::span<const GenerationRequest> requests, std::size_t first,
        std::span<GenerationResult> results, const OnToken& on_token)
      : owner_(owner),
        decoder_(owner.decoder_),
        times_(owner.times_),
        requests_(requests),
        first_(first),
        results_(results),
        on_token_(on_token),
        sequences_(requests.size()) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    for (std::uint32_t s = 0; s < started_; ++s)
      if (!sequences_[s].ended) decoder_.finish(s);
  }

  void run() {
    begin_ns_ = owner_.device_.now_ns();
    prefill();
    // Awaited before anything else is enqueued: where a policy makes the host wait for copies, the
    // first tokens would seem to take as long as the passes ahead.
    collect();
    const std::uint64_t first_tokens_ns = last_token_ns_;
    take_first_logits();
    while (true) {
      const std::vector<std::uint32_t> active = going_on();
      if (!active.empty()) decode(active);
      if (pending_.empty()) break;
      if (active.empty() || pending_.size() > Decoder::kPassesAhead) collect();
    }
    times_.prefill_ns += first_tokens_ns - begin_ns_;
    times_.decode_ns += last_token_ns_ - first_tokens_ns;
  }

 private:
  struct Sequence {
    std::uint32_t enqueued = 0;  // tokens whose choice was
    bool ended = false;
  };

  void prefill() {
    std::vector<std::uint32_t> all;
    std::vector<std::span<const std::int32_t>> prompts;
    bool last = true;
    for (const GenerationRequest& request : requests_) {
      decoder_.start(started_, request.sampling);
      all.push_back(started_++);
      prompts.emplace_back(request.prompt);
      times_.prompt_tokens += request.prompt.size();
      last = last && request.max_new_tokens == 1;
    }
    decoder_.prefill(owner_.provider_, all, prompts, last);
    enqueued(all);
  }

  void decode(const std::vector<std::uint32_t>& active) {
    const bool last = std::all_of(active.begin(), active.end(), [&](std::uint32_t s) {
      return sequences_[s].enqueued + 1 == requests_[s].max_new_tokens;
    });
    decoder_.decode(owner_.provider_, active, last);
    ++times_.decode_passes;
    enqueued(active);
  }

  // The newest pass chooses one token of each; those that are given are fed instead.
  void enqueued(const std::vector<std::uint32_t>& sequences) {
    for (const std::uint32_t s : sequences) {
      const std::uint32_t token = sequences_[s].enqueued++;
      if (is_forced(s, token)) decoder_.force(s, requests_[s].force_ids[token]);
    }
    pending_.push_back(sequences);
  }

  bool is_forced(std::uint32_t s, std::size_t token) const {
    return token < requests_[s].force_ids.size() && token + 1 < requests_[s].max_new_tokens;
  }

  std::vector<std::uint32_t> going_on() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t s = 0; s < sequences_.size(); ++s)
      if (!sequences_[s].ended && sequences_[s].enqueued < requests_[s].max_new_tokens)
        out.push_back(s);
    return out;
  }

  // Waits for the oldest pass and hands out what it chose.
  void collect() {
    const std::span<const std::int32_t> tokens =
        decoder_.chosen(static_cast<std::uint32_t>(pending_.size() - 1));
    const std::uint64_t now_ns = owner_.device_.now_ns();
    const std::vector<std::uint32_t> sequences = std::move(pending_.front());
    pending_.pop_front();
    bool counted = false;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (sequences_[sequences[i]].ended) continue;
      counted = true;
      last_token_ns_ = now_ns;
      deliver(sequences[i], tokens[i], now_ns - begin_ns_);
    }
    if (!counted) ++times_.surplus_passes;
  }

  void deliver(std::uint32_t s, std::int32_t token, std::uint64_t at_ns) {
    const GenerationRequest& request = requests_[s];
    GenerationResult& result = results_[s];
    const bool stops = is_stop(s, result.tokens.size(), token);
    result.tokens.push_back(token);
    if (result.tokens.size() == 1) result.first_token_ns = at_ns;
    result.total_ns = at_ns;
    const bool full = result.tokens.size() == request.max_new_tokens;
    const bool wanted = !on_token_ || on_token_(first_ + s, token);
    if (!stops && !full && wanted) return;
    result.finish = stops ? Finish::stop : full ? Finish::length : Finish::cancelled;
    sequences_[s].ended = true;
    decoder_.finish(s);
  }

  bool is_stop(std::uint32_t s, std::size_t place, std::int32_t token) const {
    // A device that does not execute has no tokens to stop at.
    if (requests_[s].ignore_eos || is_forced(s, place) || !owner_.device_.info().executes)
      return false;
    const auto& ids = owner_.stop_ids_;
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  }

  void take_first_logits() {
    for (std::uint32_t s = 0; s < requests_.size(); ++s)
      if (requests_[s].want_first_logits) results_[s].first_logits = decoder_.logits(s);
  }

  Generator& owner_;
  Decoder& decoder_;
  GenerationTimes& times_;
  std::span<const GenerationRequest> requests_;
  std::size_t first_;
  std::span<GenerationResult> results_;
  const OnToken& on_token_;
  std::vector<Sequence> sequences_;
  std::uint32_t started_ = 0;
  std::deque<std::vector<std::uint32_t>> pending_;  // passes enqueued and not collected
  std::uint64_t begin_ns_ = 0, last_token_ns_ = 0;
};

Generator::Generator(IDevice& device, Decoder& decoder, ILayerProvider& provider,
                     std::vector<std::int32_t> stop_ids)
    : device_(device), decoder_(decoder), provider_(provider), stop_ids_(std::move(stop_ids)) {
  decoder_.set_stop_ids(stop_ids_);
}

std::vector<GenerationResult> Generator::run(std::span<const GenerationRequest> requests,
                                             std::uint32_t batch, const OnToken& on_token) {
  if (batch == 0 || batch > decoder_.limits().sequences)
    throw InputError("a batch of {} cannot be: the decoder holds 1 to {} sequences", batch,
                     decoder_.limits().sequences);
  for (const GenerationRequest& request : requests) check(request, decoder_);

  times_ = {};
  std::vector<GenerationResult> results(requests.size());
  for (std::size_t first = 0; first < requests.size(); first += batch) {
    const std::size_t count = std::min<std::size_t>(batch, requests.size() - first);
    Batch(*this, requests.subspan(first, count), first, std::span(results).subspan(first, count),
          on_token)
        .run();
  }
  return results;
}

}  // namespace sluice
