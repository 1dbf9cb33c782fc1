#include "models/router.hpp"

#include "models/sizes.hpp"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

constexpr std::uint64_t kRoutingSeed = 1;

std::uint64_t given_bytes(const ModelConfig& config, const DecoderLimits& limits) {
  const std::uint64_t rows =
      std::max<std::uint64_t>(prefill_rows(limits), wide(config.layers) * limits.sequences);
  return rows * wide(config.experts.per_token) * sizeof(std::int32_t);
}

std::uint64_t pair_bytes(const ModelConfig& config, const DecoderLimits& limits) {
  return std::uint64_t{prefill_rows(limits)} * wide(config.experts.per_token) *
         sizeof(std::int32_t);
}

}  // namespace

Router::Router(Ops& ops, const ModelConfig& config, DType type, const DecoderLimits& limits,
               const WorkspaceLayout& work, std::uint32_t passes_ahead, const RoutingHooks& hooks)
    : ops_(ops),
      config_(config),
      work_(work),
      type_(type),
      per_token_(static_cast<std::uint32_t>(config.experts.per_token)),
      own_(hooks.given || ops.device().info().executes
               ? nullptr
               : make_uniform_routing(static_cast<std::uint32_t>(config.experts.count),
                                      kRoutingSeed)),
      given_(hooks.given ? hooks.given : own_.get()),
      sink_(hooks.sink),
      uploads_(ops, given_ ? passes_ahead + 2 : 1, given_ ? given_bytes(config, limits) : 1,
               "given experts"),
      pinned_ids_(ops.device(), Buffer::Where::pinned, pair_bytes(config, limits),
                  "the chosen experts"),
      pinned_done_(ops.device(), Buffer::Where::pinned,
                   std::uint64_t{prefill_rows(limits)} * sizeof(std::uint32_t),
                   "whether experts are chosen") {
  static_assert(sizeof(float) == sizeof(std::int32_t));
  if (sink_)
    pinned_weights_ = Buffer(ops.device(), Buffer::Where::pinned, pair_bytes(config, limits),
                             "the chosen experts' weights");
}

void Router::begin(Phase phase, std::vector<RowsOf> rows) {
  phase_ = phase;
  rows_ = std::move(rows);
  owners_.clear();
  for (const RowsOf& some : rows_) owners_.insert(owners_.end(), some.count, some.sequence);
  if (!given_) return;
  const bool decodes = phase_ == Phase::decode;
  given_ids_.resize(pairs() * (decodes ? static_cast<std::size_t>(config_.layers) : 1));
  if (!decodes) return;
  for (std::int32_t layer = 0; layer < config_.layers; ++layer)
    if (config_.has_experts(layer))
      draw(layer, std::span(given_ids_).subspan(given_at(layer), pairs()));
  uploads_.send(work_.given_ids, {std::as_bytes(std::span(given_ids_))});
}

void Router::begin_layer(std::int32_t layer) {
  ++done_value_;
  if (!given_ || phase_ == Phase::decode) return;
  draw(layer, given_ids_);
  uploads_.send(work_.given_ids, {std::as_bytes(std::span(given_ids_))});
}

void Router::draw(std::int32_t layer, std::span<std::int32_t> ids) {
  std::size_t at = 0;
  for (const RowsOf& some : rows_)
    for (std::uint32_t i = 0; i < some.count; ++i, at += per_token_)
      given_->choose(some.sequence, some.position + i, layer, ids.subspan(at, per_token_));
}

std::size_t Router::given_at(std::int32_t layer) const {
  return phase_ == Phase::decode ? static_cast<std::size_t>(layer) * pairs() : 0;
}

RouteArgs Router::args(std::int32_t layer, std::uint32_t first, std::uint32_t count) const {
  const std::size_t at = std::size_t{first} * per_token_;
  RouteArgs args{.scores = work_.scores,
                 .type = type_,
                 .rows = count,
                 .experts = static_cast<std::uint32_t>(config_.experts.count),
                 .per_token = per_token_,
                 .normalise = config_.experts.normalise};
  if (given_) args.given = work_.given_ids + given_at(layer) + at;
  args.ids = work_.expert_ids + at;
  args.weights = work_.expert_weights + at;
  return args;
}

void Router::choose(std::int32_t layer, std::uint32_t first, std::uint32_t count, bool signals) {
  const std::size_t at = std::size_t{first} * per_token_;
  RouteArgs args = this->args(layer, first, count);
  args.host_ids = pinned_ids_.as<std::int32_t>() + at;
  if (sink_) args.host_weights = pinned_weights_.as<float>() + at;
  if (signals) {
    args.done = done().words + first;
    args.done_value = done().value;
  }
  ops_.route(args);
}

std::span<const std::int32_t> Router::foreseen(std::int32_t layer) const {
  if (!given_) return {};
  return std::span(given_ids_).subspan(given_at(layer), pairs());
}

void Router::foresee(std::int32_t layer, std::uint32_t count, std::span<std::int32_t> ids) {
  const std::span<const std::int32_t> chosen = foreseen(layer);
  const auto experts = static_cast<std::uint32_t>(config_.experts.count);
  std::size_t row = 0;
  for (const RowsOf& some : rows_)
    for (std::uint32_t i = 0; i < some.count; ++i, ++row)
      given_->foresee({some.sequence, some.position + i, layer, experts},
                      chosen.subspan(row * per_token_, per_token_),
                      ids.subspan(row * count, count));
}

std::span<const std::int32_t> Router::chosen(std::uint64_t step, std::int32_t layer) {
  IDevice& device = ops_.device();
  const auto count = static_cast<std::uint32_t>(owners_.size());
  device.await(ops_.stream(), {done().words, count, done().value});
  const std::uint64_t bytes = pairs() * sizeof(std::int32_t);
  const std::array touched{range_of(pinned_ids_.data(), bytes),
                           range_of(pinned_weights_.data(), sink_ ? bytes : 0)};
  device.host({.name = "read_experts", .on = Resource::host, .bytes = bytes, .reads = touched});
  const bool executes = device.info().executes;
  const std::span<const std::int32_t> ids =
      executes ? std::span<const std::int32_t>(pinned_ids_.as<std::int32_t>(), pairs())
               : foreseen(layer);
  if (sink_) {
    RoutedRows rows{.step = step, .phase = phase_, .layer = layer, .per_token = per_token_};
    rows.ids = ids;
    if (executes) rows.weights = {pinned_weights_.as<float>(), pairs()};
    rows.sequences = owners_;
    sink_->routed(rows);
  }
  return ids;
}

}  // namespace sluice
