#include "models/decoder.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "models/decoder_setup.hpp"
#include "models/expert_layers.hpp"
#include "models/kv_cache.hpp"
#include "models/layer_ops.hpp"
#include "models/logit_reader.hpp"
#include "models/pass_results.hpp"
#include "models/prompt_rows.hpp"
#include "models/sequence_book.hpp"
#include "models/uploader.hpp"
#include "models/walk.hpp"
#include "models/workspace.hpp"

namespace sluice {
namespace {

// Knowing the positions of a pass more exactly than this makes no device's attention cheaper.
constexpr std::uint32_t kLeastLongest = 256;

// Ends a sequence, however its use ends.
struct Finisher {
  SequenceBook& book;
  std::uint32_t sequence;
  ~Finisher() { book.finish(sequence); }
};

}  // namespace

class Decoder::Impl {
 public:
  Impl(IDevice& device, StreamId compute, const ModelConfig& config, const WeightStore& weights,
       DType type, const DecoderLimits& limits, const RoutingHooks& routing)
      : config_(config),
        type_(type),
        limits_(checked_limits(config, limits)),
        ops_(device, compute),
        pages_(limits.sequences, limits.context),
        cache_(device, config, type, pages_),
        memory_(device, Buffer::Where::device,
                lay_out_workspace(nullptr, config, type, limits).bytes, "the decoder's workspace"),
        work_(lay_out_workspace(memory_.data(), config, type, limits)),
        layers_(ops_, config_, weights, type, limits.context, work_, cache_),
        walk_(walked_by_all(weights.view())),
        book_(ops_, pages_, work_, kPassesAhead),
        results_(ops_, work_, kPassesAhead + 1, limits.sequences,
                 static_cast<std::uint32_t>(config.vocab), type),
        prompts_(ops_, config_, type, limits_, work_),
        word_uploads_(ops_, (kPassesAhead + 2) * limits.sequences, sizeof(std::int32_t),
                      "tokens to be fed"),
        stop_uploads_(ops_, 1, kMaxStopIds * sizeof(std::int32_t), "the stop ids") {
    if (config_.experts.count > 0)
      experts_.emplace(ops_, config_, weights, type, limits_, work_, layers_, walk_, kPassesAhead,
                       routing);
    upload_rope(ops_, config_, limits_, work_);
    ops_.prepare(kernel_shapes(config_, weights, type, limits_));
  }

  ~Impl() {
    try {
      ops_.device().sync(ops_.device().record(ops_.stream()));
    } catch (...) {  // was for the calls that wait; nothing runs any more
    }
  }

  void prefill(ILayerProvider& provider, std::span<const std::uint32_t> sequences, Prompts prompts,
               bool last);
  void decode(ILayerProvider& provider, std::span<const std::uint32_t> sequences, bool last);
  void score(ILayerProvider& provider, std::uint32_t sequence, std::span<const std::int32_t> tokens,
             bool last, const LogitSink& sink);
  void force(std::uint32_t sequence, std::int32_t token);
  void set_stop_ids(std::span<const std::int32_t> ids);

  const ModelConfig& config() const { return config_; }
  const DecoderLimits& limits() const { return limits_; }
  SequenceBook& book() { return book_; }
  PassResults& results() { return results_; }

 private:
  void prefill_group(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                     Prompts prompts, std::uint32_t first, bool last);
  void prompt_rows(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                   Prompts prompts, bool last);
  void begin_experts(ILayerProvider& provider, std::span<const std::uint32_t> sequences, bool last);
  Repeated& kept_pass(std::size_t rows, std::uint32_t longest);
  void decode_rows(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                   std::uint64_t attended, std::uint32_t longest, bool last);
  void run_units(ILayerProvider& provider, std::span<const RowBlock> blocks, Phase phase,
                 bool last);
  void choose(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
              std::span<const std::uint32_t> rows, std::uint32_t first, Phase phase, bool last);

  const ModelConfig config_;
  const DType type_;
  const DecoderLimits limits_;
  Ops ops_;
  PageTable pages_;
  KvCache cache_;
  Buffer memory_;
  const WorkspaceLayout work_;
  LayerOps layers_;
  Walk walk_;
  std::optional<ExpertLayers> experts_;
  SequenceBook book_;
  PassResults results_;
  std::optional<LogitReader> logit_reader_;  // once something is scored
  PromptRows prompts_;
  Uploader word_uploads_, stop_uploads_;
  std::uint32_t stop_count_ = 0;
  std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::unique_ptr<Repeated>>
      kept_passes_;
};

void Decoder::Impl::set_stop_ids(std::span<const std::int32_t> ids) {
  if (ids.size() > kMaxStopIds)
    throw InputError("{} stop ids are more than the {} that can be", ids.size(), kMaxStopIds);
  for (const std::int32_t id : ids) check_token(config_, id);
  if (!ids.empty()) stop_uploads_.send(work_.stop_ids, {std::as_bytes(ids)});
  stop_count_ = static_cast<std::uint32_t>(ids.size());
}

void Decoder::Impl::force(std::uint32_t sequence, std::int32_t token) {
  check_token(config_, token);
  if (!results_.newest_has(sequence))
    throw Error("a token is forced on sequence {}, which the newest pass did not have", sequence);
  const std::span<const std::int32_t> word(&token, 1);
  word_uploads_.send(work_.next_tokens + sequence, {std::as_bytes(word)});
}

void Decoder::Impl::prefill(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                            Prompts prompts, bool last) {
  prompts_.check(sequences, prompts);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    book_.fill(sequences[i], static_cast<std::uint32_t>(prompts[i].size()));
  book_.upload(sequences);

  for (std::size_t first = 0; first < sequences.size();) {
    const std::size_t end = first + prompts_.first_group(prompts.subspan(first));
    prefill_group(provider, sequences.subspan(first, end - first),
                  prompts.subspan(first, end - first), static_cast<std::uint32_t>(first),
                  last && end == sequences.size());
    first = end;
  }
  book_.moved_on(sequences);
  results_.take(sequences);
}

// `first` is the place of the group's first sequence in the pass.
void Decoder::Impl::prefill_group(ILayerProvider& provider,
                                  std::span<const std::uint32_t> sequences, Prompts prompts,
                                  std::uint32_t first, bool last) {
  prompt_rows(provider, sequences, prompts, last);
  std::vector<std::uint32_t> last_rows;
  std::uint32_t end = 0;
  for (const auto& prompt : prompts) {
    end += static_cast<std::uint32_t>(prompt.size());
    last_rows.push_back(end - 1);
  }
  choose(provider, sequences, last_rows, first, Phase::prefill, last);
}

// Takes the prompts' tokens through all units, one row of the hidden states each.
void Decoder::Impl::prompt_rows(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                                Prompts prompts, bool last) {
  const RowIndex rows = prompts_.upload(sequences, prompts);
  if (experts_) {
    std::vector<RowsOf> of;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      of.push_back({sequences[i], 0, static_cast<std::uint32_t>(prompts[i].size())});
    experts_->begin(provider, Phase::prefill, std::move(of), last);
  }
  layers_.embed({.rows = rows, .hidden = work_.hidden});
  run_units(provider, prompts_.cut(rows, prompts), Phase::prefill, last);
}

void Decoder::Impl::score(ILayerProvider& provider, std::uint32_t sequence,
                          std::span<const std::int32_t> tokens, bool last, const LogitSink& sink) {
  const std::span<const std::uint32_t> sequences(&sequence, 1);
  prompts_.check(sequences, {&tokens, 1});
  const auto count = static_cast<std::uint32_t>(tokens.size());
  if (!logit_reader_)
    logit_reader_.emplace(ops_, work_, logit_rows(limits_),
                          static_cast<std::uint32_t>(config_.vocab), type_);
  book_.start(sequence, {});
  const Finisher finisher{book_, sequence};
  book_.fill(sequence, count);
  book_.upload(sequences);
  prompt_rows(provider, sequences, {&tokens, 1}, last);

  const UnitId unit = layers_.head_unit();
  Lease lease = provider.acquire(walk_.head(unit, Phase::prefill, count, last));
  const Weights slab = lease.use(0);
  std::vector<std::uint32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0u);
  logit_reader_->read(
      count,
      [&](std::uint32_t first, std::uint32_t some) {
        layers_.head(slab, work_.hidden, std::span(rows).subspan(first, some), 0);
      },
      sink);
}

void Decoder::Impl::decode(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                           bool last) {
  if (sequences.empty()) throw Error("a decode pass without sequences was asked for");
  std::uint64_t attended = 0;
  std::uint32_t longest = 0;
  for (const std::uint32_t sequence : sequences) {
    book_.extend(sequence);
    const std::uint32_t positions = book_.length(sequence) + 1;
    attended += positions;
    longest = std::max(longest, positions);
  }
  // Rounded up, so that passes are alike for a while.
  const std::uint32_t step = std::max(std::bit_ceil(longest) / 4, kLeastLongest);
  longest = (longest + step - 1) / step * step;
  book_.upload(sequences);
  if (experts_) begin_experts(provider, sequences, last);
  const auto pass = [&] { decode_rows(provider, sequences, attended, longest, last); };
  const bool alike = experts_ ? experts_->runs_alone(provider) : provider.is_fixed();
  alike ? kept_pass(sequences.size(), longest).run(pass) : pass();
  book_.moved_on(sequences);
  results_.take(sequences);
}

void Decoder::Impl::begin_experts(ILayerProvider& provider,
                                  std::span<const std::uint32_t> sequences, bool last) {
  std::vector<RowsOf> rows;
  for (const std::uint32_t sequence : sequences)
    rows.push_back({sequence, book_.length(sequence), 1});
  experts_->begin(provider, Phase::decode, std::move(rows), last);
}

// By all that a decode pass's operations depend on beside what lies on the device.
Repeated& Decoder::Impl::kept_pass(std::size_t rows, std::uint32_t longest) {
  std::unique_ptr<Repeated>& pass = kept_passes_[{rows, longest, stop_count_}];
  if (!pass) pass = ops_.device().make_repeated(ops_.stream());
  return *pass;
}

void Decoder::Impl::decode_rows(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                                std::uint64_t attended, std::uint32_t longest, bool last) {
  const auto count = static_cast<std::uint32_t>(sequences.size());
  std::int32_t* const tokens = work_.rows;
  std::int32_t* const owners = work_.rows + count;
  std::int32_t* const positions = work_.rows + 2 * std::size_t{count};
  ops_.decode_rows({.active = work_.active,
                    .next_tokens = work_.next_tokens,
                    .lengths = work_.lengths,
                    .tokens = tokens,
                    .sequences = owners,
                    .positions = positions,
                    .count = count},
                   limits_.sequences);
  const RowBlock block{
      .rows = {.tokens = tokens, .sequences = owners, .positions = positions, .count = count},
      .hidden = work_.hidden,
      .longest = longest,
      .attended = attended,
      .cached = attended};
  layers_.embed(block);
  run_units(provider, {&block, 1}, Phase::decode, last);

  std::vector<std::uint32_t> rows(count);
  for (std::uint32_t row = 0; row < count; ++row) rows[row] = row;
  choose(provider, sequences, rows, 0, Phase::decode, last);
}

// Units outside, rows inside: a unit crosses the link once.
void Decoder::Impl::run_units(ILayerProvider& provider, std::span<const RowBlock> blocks,
                              Phase phase, bool last) {
  std::uint32_t tokens = 0;
  for (const RowBlock& block : blocks) tokens += block.rows.count;
  for (std::size_t i = 0; i < walk_.size(); ++i) {
    const Step step = walk_.step(i, phase, tokens, last);
    const UnitId unit = step.needs[0];
    const std::int32_t layer = layers_.layer_of(unit);
    const bool attends = layers_.is_attention(unit);
    const bool routes = attends && config_.has_experts(layer);
    {
      Lease lease = provider.acquire(step);
      const Weights slab = lease.use(0);
      for (const RowBlock& block : blocks) {
        if (attends)
          layers_.attention(unit, slab, block);
        else
          layers_.mlp(unit, slab, block);
      }
      if (routes) experts_->route(provider, step, slab, blocks, layer);
    }
    if (routes) experts_->run(provider, i, blocks);
  }
}

// The head's work_ on hidden rows `rows`, one of each sequence, and the choice of the next tokens.
void Decoder::Impl::choose(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                           std::span<const std::uint32_t> rows, std::uint32_t first, Phase phase,
                           bool last) {
  const auto count = static_cast<std::uint32_t>(sequences.size());
  const UnitId unit = layers_.head_unit();
  {
    Lease lease = provider.acquire(walk_.head(unit, phase, count, last));
    layers_.head(lease.use(0), work_.hidden, rows, first);
  }
  const std::uint64_t vocab = static_cast<std::uint64_t>(config_.vocab);
  ops_.sample({.logits = work_.logits + first * vocab * size_of(type_),
               .type = type_,
               .rows = count,
               .vocab = static_cast<std::uint32_t>(vocab),
               .sequences = work_.active + first,
               .params = work_.params,
               .stop_ids = work_.stop_ids,
               .stop_count = stop_count_,
               .next_tokens = work_.next_tokens,
               .lengths = work_.lengths,
               .generated = work_.generated,
               .chosen = work_.chosen + first},
              limits_.sequences);
}

Decoder::Decoder(IDevice& device, StreamId compute, const ModelConfig& config,
                 const WeightStore& weights, DType dtype, const DecoderLimits& limits,
                 const RoutingHooks& routing)
    : impl_(std::make_unique<Impl>(device, compute, config, weights, dtype, limits, routing)) {}

Decoder::~Decoder() = default;

std::uint64_t Decoder::device_bytes(const ModelConfig& config, DType dtype,
                                    const DecoderLimits& limits) {
  checked_limits(config, limits);
  const std::uint64_t cache =
      KvCache::device_bytes(config, dtype, limits.sequences, limits.context);
  return cache + lay_out_workspace(nullptr, config, dtype, limits).bytes;
}

std::uint32_t Decoder::max_context(const ModelConfig& config) {
  double positions = config.max_positions;
  if (config.rope.type == RopeType::yarn)
    positions = std::max(positions, config.rope.original_positions * config.rope.factor);
  if (config.rope.type == RopeType::linear) positions *= config.rope.factor;
  return static_cast<std::uint32_t>(positions);
}

const DecoderLimits& Decoder::limits() const { return impl_->limits(); }

std::int32_t Decoder::vocab() const { return impl_->config().vocab; }

void Decoder::start(std::uint32_t sequence, const SamplingParams& sampling) {
  impl_->book().start(sequence, sampling);
}

void Decoder::finish(std::uint32_t sequence) { impl_->book().finish(sequence); }

void Decoder::prefill(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                      std::span<const std::span<const std::int32_t>> prompts, bool last) {
  impl_->prefill(provider, sequences, prompts, last);
}

void Decoder::decode(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                     bool last) {
  impl_->decode(provider, sequences, last);
}

void Decoder::score(ILayerProvider& provider, std::uint32_t sequence,
                    std::span<const std::int32_t> tokens, bool last, const LogitSink& sink) {
  impl_->score(provider, sequence, tokens, last, sink);
}

std::span<const std::int32_t> Decoder::chosen(std::uint32_t back) {
  return impl_->results().chosen(back);
}

void Decoder::force(std::uint32_t sequence, std::int32_t token) { impl_->force(sequence, token); }

std::vector<float> Decoder::logits(std::uint32_t sequence) {
  return impl_->results().logits(sequence);
}

void Decoder::set_stop_ids(std::span<const std::int32_t> ids) { impl_->set_stop_ids(ids); }

}  // namespace sluice
