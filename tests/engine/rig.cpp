#include "tests/engine/rig.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/weights/encoding.hpp"
#include "core/weights/hash.hpp"
#include "sluice/helpers.hpp"

namespace sluice::test {
namespace {

float element(std::uint64_t tensor, std::uint64_t i) {
  return static_cast<float>((tensor * 4093 + i) % (1u << 19));  // exact in f32, and int4 takes it
}

// Tensors are named by the number of their unit.
std::uint64_t number_of(const TensorSpec& tensor) { return std::stoull(tensor.name); }

}  // namespace

std::uint64_t bytes_of(const Shape& shape, UnitKind kind, std::int32_t layer) {
  const std::uint64_t more = shape.uneven ? 48 * static_cast<std::uint64_t>(layer % 3) : 0;
  switch (kind) {
    case UnitKind::attention: return 1024 + more;
    case UnitKind::mlp: return 2048 + 256 - more;
    case UnitKind::expert: return 512 + more;
    case UnitKind::embedding: return 640;
    case UnitKind::head: return shape.tied ? 640 : 3 * 1024 + 16;
  }
  return 0;
}

ModelPlan make_plan(const Shape& shape) {
  ModelPlan plan;
  plan.layers = shape.layers;
  plan.experts_per_layer = shape.experts;
  plan.experts_per_token = shape.experts_per_token;
  const auto add = [&](UnitKind kind, std::int32_t layer, std::int32_t expert) {
    UnitSpec unit;
    unit.kind = kind;
    unit.layer = layer;
    unit.expert = expert;
    TensorSpec tensor;
    tensor.name = std::to_string(plan.units.size());
    tensor.shape = {bytes_of(shape, kind, layer) / 16, 4};
    tensor.is_matrix = shape.quantised && kind != UnitKind::embedding;
    unit.tensors.push_back(tensor);
    plan.units.push_back(unit);
  };
  add(UnitKind::embedding, 0, -1);
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    add(UnitKind::attention, layer, -1);
    if (shape.experts == 0) add(UnitKind::mlp, layer, -1);
    for (std::int32_t e = 0; e < shape.experts; ++e) add(UnitKind::expert, layer, e);
  }
  add(UnitKind::head, shape.layers, -1);
  if (shape.tied) {
    plan.units.front().tensors = plan.units.back().tensors;
    plan.units.front().shares = static_cast<UnitId>(plan.units.size() - 1);
  }
  return plan;
}

WeightStore::Options store_options(const Shape& shape) {
  WeightStore::Options options{.dtype = DType::f32, .threads = 1, .progress = {}};
  if (!shape.quantised) return options;
  EncodingSet all = Encoding::native;
  all.add(Encoding::int8);
  all.add(Encoding::int4);
  for (const UnitSpec& unit : make_plan(shape).units)
    options.encodings.push_back(unit.kind == UnitKind::embedding ? Encoding::native : all);
  return options;
}

void PatternSource::read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
                         std::byte* to) const {
  for (std::uint64_t i = 0; i < n; ++i) {
    const float value = element(number_of(tensor), first + i);
    std::memcpy(to + 4 * i, &value, 4);
  }
}

Walker::Walker(Bench& bench)
    : bench_(bench),
      view_(bench.store.view()),
      verdicts_(bench.device, Buffer::Where::pinned,
                sizeof(std::uint64_t) + kMaxReads * sizeof(std::uint32_t), "verdicts") {
  if (bench.device.info().executes) *verdicts_.as<std::uint64_t>() = 0;
}

Walker::~Walker() { bench_.device.sync(bench_.device.record(bench_.compute)); }

void Walker::run(ILayerProvider& provider, std::uint32_t tokens) {
  std::vector<UnitId> walk;  // experts are not known ahead
  for (std::uint32_t t = 0; t < tokens; ++t)
    for (const UnitInfo& unit : view_.units)
      if (unit.kind != UnitKind::expert && unit.kind != UnitKind::embedding)
        walk.push_back(unit.id);
  for (std::size_t i = 0; i < walk.size(); ++i) {
    const std::size_t far = std::min(2 * view_.units.size(), walk.size() - i - 1);
    const std::span<const UnitId> soon(walk.data() + i + 1, far);
    take(provider, std::span<const UnitId>(&walk[i], 1), soon);
    const UnitInfo& unit = view_.units[walk[i]];
    if (unit.kind == UnitKind::attention && view_.experts_per_layer > 0)
      experts(provider, tokens_ + i / (walk.size() / tokens), unit.layer, soon);
  }
  tokens_ += tokens;
}

void Walker::experts(ILayerProvider& provider, std::uint64_t token, std::int32_t layer,
                     std::span<const UnitId> after) {
  std::mt19937_64 rng((seed * 7919 + token) * 7919 + static_cast<std::uint64_t>(layer));
  std::vector<UnitId> all;
  for (const UnitInfo& unit : view_.units)
    if (unit.kind == UnitKind::expert && unit.layer == layer) all.push_back(unit.id);
  std::shuffle(all.begin(), all.end(), rng);
  all.resize(static_cast<std::size_t>(view_.experts_per_token));
  if (hints) {
    static_cast<void>(provider.wanted_guesses({.index = next_index - 1}));
    std::vector<UnitId> guess(all);
    for (UnitId& unit : guess)
      if (rng() % 2) unit = static_cast<UnitId>(rng() % view_.units.size());
    provider.routed(guess);
  }
  const std::size_t group = std::max(1u, provider.capacity(UnitKind::expert) / 2);
  for (std::size_t i = 0; i < all.size(); i += group) {
    const std::size_t n = std::min(group, all.size() - i);
    std::vector<UnitId> soon(all.begin() + static_cast<std::ptrdiff_t>(i + n), all.end());
    soon.insert(soon.end(), after.begin(), after.end());
    take(provider, std::span<const UnitId>(&all[i], n), soon);
  }
}

void Walker::step(ILayerProvider& provider, std::vector<UnitId> needs, std::vector<UnitId> soon) {
  take(provider, needs, soon);
}

void Walker::take(ILayerProvider& provider, std::span<const UnitId> needs,
                  std::span<const UnitId> soon) {
  Lease lease = provider.acquire({.index = next_index++, .needs = needs, .soon = soon});
  for (std::size_t i = 0; i < needs.size(); ++i) read(lease.use(i), needs[i]);
}

// Slabs of the store where they lie on the device as they are, else what a plain loop makes of them.
const std::byte* Walker::expected(UnitId unit, Transfer how) {
  const std::byte* const slab = bench_.store.slab(unit, how.wire);
  if (how.wire == how.resident || !bench_.device.info().executes) return slab;
  std::vector<std::byte>& native = dequantised_[unit];
  if (native.empty()) {
    const TensorPlace& place = bench_.store.layout().place(unit, 0, how.wire);
    const std::vector<std::uint64_t>& shape = bench_.store.spec(unit).tensors[0].shape;
    native.resize(view_.units[unit].size(Encoding::native));
    dequantise_rows(how.wire, slab + place.data, slab + place.scales, shape[0], shape[1],
                    DType::f32, native.data());
  }
  return native.data();
}

void Walker::read(const Weights& weights, UnitId unit) {
  if (reads_ == kMaxReads) throw Error("a walker reads {} units at most", kMaxReads);
  const Transfer how = transfer(view_.units[unit]);
  const std::uint64_t bytes = view_.units[unit].size(how.resident);
  auto* digest = verdicts_.as<std::uint64_t>();
  std::uint32_t* verdict = reinterpret_cast<std::uint32_t*>(digest + 1) + reads_++;
  if (weights.encoding != how.resident || weights.range.size != bytes ||
      weights.range.begin != reinterpret_cast<std::uint64_t>(weights.data))
    throw Error("unit {} has another encoding or range than its weights", unit);
  if (bench_.recorder && how.wire == how.resident &&
      !bench_.recorder->holds(weights.range, bench_.store.slab(unit, how.wire)))
    ++wrong_recorded_;
  const std::byte* data = weights.data;
  const auto* at = reinterpret_cast<const float*>(data);
  const std::uint64_t number = number_of(bench_.store.spec(unit).tensors[0]);
  const std::byte* const other = how.wire == Encoding::native ? nullptr : expected(unit, how);
  const std::array reads{weights.range, range_of(digest, sizeof(*digest))};
  const std::array writes{range_of(verdict, sizeof(*verdict)), range_of(digest, sizeof(*digest))};
  bench_.device.enqueue(
      bench_.compute,
      {.name = "read", .unit = unit, .bytes = bytes, .reads = reads, .writes = writes},
      [=](NativeStream) {
        std::uint32_t wrong = 0;
        if (other)
          for (std::uint64_t i = 0; i < bytes; ++i) wrong += data[i] != other[i];
        else
          for (std::uint64_t i = 0; i < bytes / 4; ++i) wrong += !(at[i] == element(number, i));
        *verdict = wrong;
        *digest = hash_bytes({data, bytes}, *digest);
      });
}

void Walker::look_at_verdicts() {
  bench_.device.sync(bench_.device.record(bench_.compute));
  const std::array looked_at{verdicts_.range()};
  bench_.device.host({.name = "verdicts", .on = Resource::host, .reads = looked_at});
}

std::size_t Walker::wrong_reads() {
  look_at_verdicts();
  if (bench_.recorder) return wrong_recorded_;
  if (!bench_.device.info().executes) throw Error("a device that runs nothing has no verdicts");
  const auto* verdicts = reinterpret_cast<const std::uint32_t*>(verdicts_.data() + 8);
  return static_cast<std::size_t>(
      std::count_if(verdicts, verdicts + reads_, [](std::uint32_t wrong) { return wrong != 0; }));
}

std::uint64_t Walker::digest() {
  look_at_verdicts();
  return *verdicts_.as<std::uint64_t>();
}

Layout KeepPolicy::layout(const ModelView& model, const Budget& budget) {
  Layout out = PrefetchPolicy::layout(model, budget);
  for (UnitKind kind : kStreamedKinds) {
    std::vector<UnitId> units;
    for (const UnitInfo& unit : model.units)
      if (unit.kind == kind) units.push_back(unit.id);
    const std::uint32_t slots = budget.slots[kind];
    const std::size_t count = slots < units.size() ? slots - 1 : units.size();
    for (std::size_t i : spread_evenly(count, units.size())) out.keep.push_back(units[i]);
  }
  return out;
}

Layout ChaosPolicy::layout(const ModelView& model, const Budget& budget) {
  units_ = model.units.size();
  Layout out{.lanes = static_cast<std::uint32_t>(rng_() % 4), .blocking = rng_() % 4 == 0};
  PerKind<std::uint32_t> kept;
  for (const UnitInfo& unit : model.units)
    if (is_streamed(unit.kind) && rng_() % 4 == 0 &&
        kept[unit.kind] + 1 < budget.slots[unit.kind]) {
      out.keep.push_back(unit.id);
      ++kept[unit.kind];
    }
  for (UnitKind kind : kStreamedKinds)
    if (rng_() % 2 == 0 && budget.slots[kind] > kept[kind])
      out.rotating[kind] =
          1 + static_cast<std::uint32_t>(rng_() % (budget.slots[kind] - kept[kind]));
  return out;
}

Transfer ChaosPolicy::transfer(const ModelView&, const UnitInfo& unit) const {
  constexpr std::array kAll{Transfer{}, Transfer{Encoding::int8, Encoding::native},
                            Transfer{Encoding::int8, Encoding::int8},
                            Transfer{Encoding::int4, Encoding::native},
                            Transfer{Encoding::int4, Encoding::int4}};
  if (unit.size(Encoding::int8) == 0) return {};
  return kAll[mix(seed_ * 7919 + unit.id) % kAll.size()];
}

void ChaosPolicy::wish(std::span<const UnitId> hints, Actions& actions) {
  for (std::uint64_t n = rng_() % 8; n > 0; --n) {
    const auto any = static_cast<UnitId>(rng_() % (units_ + 2));
    const UnitId near =
        hints.empty() ? kNoUnit : hints[rng_() % std::min<std::size_t>(hints.size(), 6)];
    switch (rng_() % 4) {
      case 0: actions.drop(any); break;
      case 1: static_cast<void>(actions.prefetch(any)); break;
      default: static_cast<void>(actions.prefetch(near));
    }
  }
}

UnitId ChaosPolicy::victim(const UnitInfo& incoming, const Candidates& candidates) {
  if (candidates.size() == 0 || candidates.oldest() == kNoUnit)
    throw Error("victim() was offered nothing");
  switch (rng_() % 5) {
    case 0: return kNoUnit;
    case 1: return incoming.id;
    case 2: return static_cast<UnitId>(rng_() % (units_ + 5));
    case 3: return candidates.oldest_in(static_cast<std::int32_t>(rng_() % 9) - 1);
    default: break;
  }
  UnitId unit = candidates.oldest();
  for (std::uint64_t n = rng_() % candidates.size(); n > 0; --n) unit = candidates.newer(unit);
  return unit;
}

}  // namespace sluice::test
