#include "models/decoder.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "models/expert_layers.hpp"
#include "models/kv_cache.hpp"
#include "models/layer_ops.hpp"
#include "models/logit_reader.hpp"
#include "models/pass_results.hpp"
#include "models/rope.hpp"
#include "models/sequence_book.hpp"
#include "models/uploader.hpp"
#include "models/walk.hpp"
#include "models/workspace.hpp"

namespace sluice {
namespace {

// Enough for the host to prepare a group of prompts while the one before is on its way.
constexpr std::uint32_t kRowUploads = 2;
// Knowing the positions of a pass more exactly than this makes no device's attention cheaper.
constexpr std::uint32_t kLeastLongest = 256;

DecoderLimits checked(const ModelConfig& config, const DecoderLimits& limits) {
  const ExpertConfig& experts = config.experts;
  if (experts.count > static_cast<std::int32_t>(kMaxExperts) ||
      experts.per_token > static_cast<std::int32_t>(kMaxExpertsPerToken))
    throw InputError("{} chooses {} of {} experts a layer; up to {} of up to {} can be",
                     name_of(config.architecture), experts.per_token, experts.count,
                     kMaxExpertsPerToken, kMaxExperts);
  const std::uint32_t most = Decoder::max_context(config);
  if (limits.context == 0 || limits.context > most)
    throw InputError("a context of {} positions cannot be: the model has 1 to {}", limits.context,
                     most);
  if (limits.sequences == 0 || limits.prefill_chunk == 0)
    throw InputError(
        "a decoder of {} sequences and {} rows at a time cannot be: at least 1 of each",
        limits.sequences, limits.prefill_chunk);
  return limits;
}

bool has_units(const WeightStore& weights, UnitKind kind) {
  return std::ranges::any_of(weights.view().units,
                             [&](const UnitInfo& unit) { return unit.kind == kind; });
}

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
        limits_(checked(config, limits)),
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
        row_uploads_(ops_, kRowUploads,
                     3 * std::uint64_t{prefill_rows(limits)} * sizeof(std::int32_t),
                     "the rows of prompts"),
        word_uploads_(ops_, (kPassesAhead + 2) * limits.sequences, sizeof(std::int32_t),
                      "tokens to be fed"),
        stop_uploads_(ops_, 1, kMaxStopIds * sizeof(std::int32_t), "the stop ids") {
    if (config_.experts.count > 0)
      experts_.emplace(ops_, config_, weights, type, limits_, work_, layers_, walk_, kPassesAhead,
                       routing);
    upload_rope();
    ops_.prepare(shapes(weights));
  }

  ~Impl() {
    try {
      ops_.device().sync(ops_.device().record(ops_.stream()));
    } catch (...) {  // was for the calls that wait; nothing runs any more
    }
  }

  void prefill(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
               std::span<const std::span<const std::int32_t>> prompts, bool last);
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
  using Prompts = std::span<const std::span<const std::int32_t>>;

  void upload_rope();
  KernelShapes shapes(const WeightStore& weights) const;
  void check_token(std::int32_t token) const;
  void check(std::span<const std::uint32_t> sequences, Prompts prompts) const;
  void prefill_group(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                     Prompts prompts, std::uint32_t first, bool last);
  void prompt_rows(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                   Prompts prompts, bool last);
  RowIndex upload_rows(std::span<const std::uint32_t> sequences, Prompts prompts);
  std::vector<RowBlock> cut(const RowIndex& rows, Prompts prompts) const;
  void begin_experts(ILayerProvider& provider, std::span<const std::uint32_t> sequences, bool last);
  Repeated& kept_pass(std::size_t rows, std::uint32_t longest);
  void decode_rows(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                   std::uint64_t attended, std::uint32_t longest, bool last);
  void run_units(ILayerProvider& provider, std::span<const RowBlock> blocks, Phase phase,
                 bool last);
  void choose(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
              std::span<const std::uint32_t> rows, std::uint32_t first, Phase phase, bool last);
  std::byte* hidden_row(std::uint64_t row) const {
    return work_.hidden + row * static_cast<std::uint64_t>(config_.hidden) * size_of(type_);
  }

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
  Uploader row_uploads_, word_uploads_, stop_uploads_;
  std::uint32_t stop_count_ = 0;
  std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::unique_ptr<Repeated>>
      kept_passes_;
};

void Decoder::Impl::upload_rope() {
  const auto head_dim = static_cast<std::uint32_t>(config_.head_dim);
  const std::size_t angles = std::size_t{limits_.context} * (head_dim / 2);
  std::vector<float> tables(2 * angles);
  const std::span<float> both(tables);
  if (ops_.device().info().executes)
    fill_rope_tables(config_.rope, head_dim, limits_.context, both.first(angles),
                     both.last(angles));
  Uploader once(ops_, 1, both.size_bytes(), "the tables of angles");
  once.send(work_.cos, {std::as_bytes(both)});
  ops_.device().sync(ops_.device().record(ops_.stream()));
}

KernelShapes Decoder::Impl::shapes(const WeightStore& weights) const {
  const auto size = [](std::int32_t n) { return static_cast<std::uint32_t>(n); };
  const std::uint32_t hidden = size(config_.hidden);
  const std::uint32_t q = size(config_.q_size()), kv = size(config_.kv_size());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> matrices{{q + 2 * kv, hidden}, {hidden, q}};
  const auto add_mlp = [&](std::uint32_t width) {
    matrices.insert(matrices.end(), {{2 * width, hidden}, {hidden, width}});
  };
  if (has_units(weights, UnitKind::mlp)) add_mlp(size(config_.intermediate));
  if (has_units(weights, UnitKind::expert)) {
    add_mlp(size(config_.experts.intermediate));
    matrices.emplace_back(size(config_.experts.count), hidden);  // the router
  }
  const bool quantised = std::ranges::any_of(weights.view().units, [&](const UnitInfo& unit) {
    return weights.stores(unit.id, Encoding::int8) || weights.stores(unit.id, Encoding::int4);
  });
  return {.type = type_,
          .matrices = std::move(matrices),
          .heads = size(config_.heads),
          .kv_heads = size(config_.kv_heads),
          .head_dim = size(config_.head_dim),
          .vocab = size(config_.vocab),
          .quantised = quantised,
          .rows = std::max(std::min(limits_.prefill_chunk, limits_.context), limits_.sequences),
          .sequences = limits_.sequences,
          .context = limits_.context};
}

void Decoder::Impl::check_token(std::int32_t token) const {
  if (token < 0 || token >= config_.vocab)
    throw InputError("there is no token {}: the model's ids are 0 to {}", token, config_.vocab - 1);
}

void Decoder::Impl::set_stop_ids(std::span<const std::int32_t> ids) {
  if (ids.size() > kMaxStopIds)
    throw InputError("{} stop ids are more than the {} that can be", ids.size(), kMaxStopIds);
  for (const std::int32_t id : ids) check_token(id);
  if (!ids.empty()) stop_uploads_.send(work_.stop_ids, {std::as_bytes(ids)});
  stop_count_ = static_cast<std::uint32_t>(ids.size());
}

void Decoder::Impl::force(std::uint32_t sequence, std::int32_t token) {
  check_token(token);
  if (!results_.newest_has(sequence))
    throw Error("a token is forced on sequence {}, which the newest pass did not have", sequence);
  const std::span<const std::int32_t> word(&token, 1);
  word_uploads_.send(work_.next_tokens + sequence, {std::as_bytes(word)});
}

void Decoder::Impl::check(std::span<const std::uint32_t> sequences, Prompts prompts) const {
  if (sequences.empty() || sequences.size() != prompts.size())
    throw Error("a prefill of {} sequences was given {} prompts", sequences.size(), prompts.size());
  for (const auto& prompt : prompts) {
    if (prompt.empty()) throw InputError("a prompt has no tokens; at least one is needed");
    if (prompt.size() > limits_.context)
      throw InputError("a prompt of {} tokens is longer than the context of {}", prompt.size(),
                       limits_.context);
    for (const std::int32_t token : prompt) check_token(token);
  }
}

void Decoder::Impl::prefill(ILayerProvider& provider, std::span<const std::uint32_t> sequences,
                            Prompts prompts, bool last) {
  check(sequences, prompts);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    book_.fill(sequences[i], static_cast<std::uint32_t>(prompts[i].size()));
  book_.upload(sequences);

  const std::uint32_t most_rows = prefill_rows(limits_);
  for (std::size_t first = 0; first < sequences.size();) {
    std::size_t end = first;
    for (std::size_t rows = 0; end < sequences.size(); ++end) {
      rows += prompts[end].size();
      if (rows > most_rows) break;
    }
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
  const RowIndex rows = upload_rows(sequences, prompts);
  if (experts_) {
    std::vector<RowsOf> of;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      of.push_back({sequences[i], 0, static_cast<std::uint32_t>(prompts[i].size())});
    experts_->begin(provider, Phase::prefill, std::move(of), last);
  }
  layers_.embed({.rows = rows, .hidden = work_.hidden});
  run_units(provider, cut(rows, prompts), Phase::prefill, last);
}

// One row per token, prompt after prompt.
RowIndex Decoder::Impl::upload_rows(std::span<const std::uint32_t> sequences, Prompts prompts) {
  std::vector<std::int32_t> tokens, owners, positions;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    tokens.insert(tokens.end(), prompts[i].begin(), prompts[i].end());
    owners.insert(owners.end(), prompts[i].size(), static_cast<std::int32_t>(sequences[i]));
    for (std::size_t at = 0; at < prompts[i].size(); ++at)
      positions.push_back(static_cast<std::int32_t>(at));
  }
  row_uploads_.send(work_.rows, {std::as_bytes(std::span(tokens)), std::as_bytes(std::span(owners)),
                                 std::as_bytes(std::span(positions))});
  const std::size_t count = tokens.size();
  return {.tokens = work_.rows,
          .sequences = work_.rows + count,
          .positions = work_.rows + 2 * count,
          .count = static_cast<std::uint32_t>(count)};
}

// Pieces of one prompt each, so that a result depends on its own sequence alone.
std::vector<RowBlock> Decoder::Impl::cut(const RowIndex& rows, Prompts prompts) const {
  std::vector<RowBlock> blocks;
  std::uint32_t row = 0;
  for (const auto& prompt : prompts) {
    const auto length = static_cast<std::uint32_t>(prompt.size());
    for (std::uint32_t at = 0; at < length; at += limits_.prefill_chunk) {
      const std::uint32_t count = std::min(limits_.prefill_chunk, length - at);
      blocks.push_back({.rows = {.tokens = rows.tokens + row,
                                 .sequences = rows.sequences + row,
                                 .positions = rows.positions + row,
                                 .count = count},
                        .first = row,
                        .hidden = hidden_row(row),
                        .consecutive = true,
                        .longest = at + count,
                        .attended = std::uint64_t{count} * at +
                                    std::uint64_t{count} * (count + std::uint64_t{1}) / 2,
                        .cached = at + std::uint64_t{count}});
      row += count;
    }
  }
  return blocks;
}

void Decoder::Impl::score(ILayerProvider& provider, std::uint32_t sequence,
                          std::span<const std::int32_t> tokens, bool last, const LogitSink& sink) {
  const std::span<const std::uint32_t> sequences(&sequence, 1);
  check(sequences, {&tokens, 1});
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
  checked(config, limits);
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
