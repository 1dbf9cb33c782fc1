// A small model, a forward pass that reads every byte of it, and policies, for the engine's tests.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.hpp"
#include "core/weights/weight_store.hpp"
#include "tests/audited.hpp"
#include "tests/engine/recording_device.hpp"

namespace sluice::test {

struct Shape {
  std::int32_t layers = 4;
  std::int32_t experts = 0, experts_per_token = 0;
  bool tied = false;
  bool uneven = false;  // units of a kind differ in size
  // Every unit but the embedding can be had in all encodings, and is stored so.
  bool quantised = false;
};

ModelPlan make_plan(const Shape& shape);
WeightStore::Options store_options(const Shape& shape);
// What make_plan gives a unit, in bytes, worked out apart from it.
std::uint64_t bytes_of(const Shape& shape, UnitKind kind, std::int32_t layer);

// Elements that tell which tensor and which place they come from.
class PatternSource final : public ITensorSource {
 public:
  DType stored_type(const TensorSpec&) const override { return DType::f32; }
  bool has(const std::string&) const override { return true; }
  void read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
            std::byte* to) const override;
  std::string describe() const override { return "pattern"; }
};

// What an engine stands on: a device under the audit, a store, a compute stream.
struct Bench {
  Bench(IDevice& on, const Shape& of)
      : audited(on),
        device(audited.device()),
        recorder(dynamic_cast<RecordingDevice*>(&on)),
        shape(of),
        store(device, make_plan(of), PatternSource(), store_options(of)),
        compute(device.make_stream(Resource::compute, "compute")) {}

  Audited audited;
  IDevice& device;
  RecordingDevice* recorder;  // null: it is another device
  Shape shape;
  WeightStore store;
  StreamId compute;
};

// Walks a model as a forward pass does and checks that each unit's bytes are its own, and in the
// encoding that `transfer` says: on a device that executes by reading them there, on the recorder by
// what it knows.
class Walker {
 public:
  explicit Walker(Bench& bench);
  ~Walker();

  // The walk of `tokens` tokens; a step per unit, experts in groups of half the capacity. `soon`
  // reaches two tokens ahead, never past the end.
  void run(ILayerProvider& provider, std::uint32_t tokens);
  // One step.
  void step(ILayerProvider& provider, std::vector<UnitId> needs, std::vector<UnitId> soon = {});
  void read(const Weights& weights, UnitId unit);
  // Waits, then counts the reads that saw a wrong byte.
  std::size_t wrong_reads();
  // Of everything that was read, in its order; on a device that executes. The same walk gives the
  // same, whoever provides.
  std::uint64_t digest();
  std::uint64_t reads() const { return reads_; }
  std::uint64_t next_index = 0;
  std::uint64_t seed = 1;  // of the routing
  bool hints = true;       // routed() is called, rightly half of the time
  TransferOf transfer = [](const UnitInfo&) { return Transfer{}; };

 private:
  void experts(ILayerProvider& provider, std::uint64_t token, std::int32_t layer,
               std::span<const UnitId> after);
  void look_at_verdicts();
  const std::byte* expected(UnitId unit, Transfer how);
  void take(ILayerProvider& provider, std::span<const UnitId> needs, std::span<const UnitId> soon);

  static constexpr std::size_t kMaxReads = 1 << 16;
  Bench& bench_;
  ModelView view_;
  std::map<UnitId, std::vector<std::byte>> dequantised_;
  Buffer verdicts_;  // the digest, then a word per read: the wrong elements it saw
  std::uint64_t reads_ = 0, wrong_recorded_ = 0, tokens_ = 0;
};

// Policies ------------------------------------------------------------------------------------

// Fetches on demand, the host waits.
class NaivePolicy : public IOffloadPolicy {
 public:
  Layout layout(const ModelView&, const Budget&) override { return {.blocking = true}; }
};

// Least recently used, `depth` units ahead.
class PrefetchPolicy : public IOffloadPolicy {
 public:
  explicit PrefetchPolicy(std::size_t depth = 1, std::uint32_t lanes = 1)
      : depth_(depth), lanes_(lanes) {}
  Layout layout(const ModelView&, const Budget&) override { return {.lanes = lanes_}; }
  void before(const Step& step, Actions& actions) override {
    for (UnitId unit : step.soon.first(std::min(depth_, step.soon.size())))
      static_cast<void>(actions.prefetch(unit));
  }

 private:
  std::size_t depth_;
  std::uint32_t lanes_;
};

// Keeps what fits beside one rotating slot of each kind, spread over the layers; streams the rest.
class KeepPolicy : public PrefetchPolicy {
 public:
  using PrefetchPolicy::PrefetchPolicy;
  Layout layout(const ModelView& model, const Budget& budget) override;
};

// Any wish at all, legal or not.
class ChaosPolicy : public IOffloadPolicy {
 public:
  explicit ChaosPolicy(std::uint64_t seed) : rng_(seed), seed_(seed) {}
  Layout layout(const ModelView& model, const Budget& budget) override;
  void before(const Step& step, Actions& actions) override { wish(step.soon, actions); }
  void routed(std::span<const UnitId> units, Actions& actions) override { wish(units, actions); }
  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) override;
  // Any that the engine has, of what the unit can be had in.
  Transfer transfer(const ModelView& model, const UnitInfo& unit) const override;
  Place place(const UnitInfo&, const Step&) override {
    return rng_() % 16 == 0 ? Place::host : Place::device;
  }

 private:
  void wish(std::span<const UnitId> hints, Actions& actions);
  std::mt19937_64 rng_;
  std::uint64_t seed_, units_ = 0;
};

// Each hook a function, for a test's own ends.
class ScriptedPolicy : public IOffloadPolicy {
 public:
  std::function<Layout(const ModelView&, const Budget&)> on_layout;
  std::function<Transfer(const UnitInfo&)> on_transfer;
  std::function<void(const Step&, Actions&)> on_before;
  std::function<std::uint32_t(const Step&)> on_wanted_guesses;
  std::function<void(std::span<const UnitId>, Actions&)> on_routed;
  std::function<UnitId(const UnitInfo&, const Candidates&)> on_victim;
  std::function<Place(const UnitInfo&, const Step&)> on_place;

  Layout layout(const ModelView& model, const Budget& budget) override {
    return on_layout ? on_layout(model, budget) : Layout{};
  }
  Transfer transfer(const ModelView&, const UnitInfo& unit) const override {
    return on_transfer ? on_transfer(unit) : Transfer{};
  }
  void before(const Step& step, Actions& actions) override {
    if (on_before) on_before(step, actions);
  }
  std::uint32_t wanted_guesses(const Step& step) override {
    return on_wanted_guesses ? on_wanted_guesses(step) : 0;
  }
  void routed(std::span<const UnitId> units, Actions& actions) override {
    if (on_routed) on_routed(units, actions);
  }
  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) override {
    return on_victim ? on_victim(incoming, candidates) : candidates.oldest();
  }
  Place place(const UnitInfo& unit, const Step& step) override {
    return on_place ? on_place(unit, step) : Place::device;
  }
};

}  // namespace sluice::test
