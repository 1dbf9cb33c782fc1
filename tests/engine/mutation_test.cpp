// An engine without one of its edges is caught by the audit, whichever edge it is.
//
// The mutants are made below the engine: a device that loses exactly the calls that the edge consists
// of. To everything underneath that is the same as an engine which does not make them, since the
// engine learns nothing from these calls: they return nothing, and its own marks (Slot::ready,
// last_read, seen) are set whether the device obeys or not. Each run is audited twice, above the loss
// and below it: the bench's own audit sees the engine as it is and fails the test for any race.
#include <algorithm>

#include "core/device/device_decorator.hpp"
#include "core/device/sim_device.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

enum class Edge {
  none,
  // Copier::before_read, which alone waits for weights.
  ready,
  // Copier::start and poison, order_after(last_read): `last_read` is recorded on the compute stream
  // and on no other; all that a lane waits for besides, `ready`, is recorded on a lane (the weights
  // here are pinned: there is no staging).
  reuse,
  // The same, order_after(ready): what a lane waits for that lies on a lane.
  order_of_loads,
  // Copier::~Copier, where alone the host waits while an engine ends.
  drain,
  // Of units that are dequantised: Converter::take, and the waits of Converter::convert for the copies
  // and for the last reader.
  staging_reuse,
  conversion,
  conversion_reuse,
};

class ForgetfulDevice final : public DeviceDecorator<IDevice> {
 public:
  ForgetfulDevice(IDevice& below, Edge forgets) : DeviceDecorator(below), forgets_(forgets) {}

  bool engine_ends = false;  // set by the test
  std::size_t forgotten = 0;

  StreamId make_stream(Resource resource, const char* name) override {
    const StreamId stream = below_.make_stream(resource, name);
    if (resource == Resource::compute)
      (name == std::string_view("convert") ? convert_ : compute_) = stream;
    return stream;
  }
  void wait(StreamId stream, Event event, WaitFor why) override {
    const Edge edge = why == WaitFor::weights    ? Edge::ready
                      : event.stream == convert_ ? Edge::staging_reuse
                      : stream == convert_
                          ? event.stream == compute_ ? Edge::conversion_reuse : Edge::conversion
                      : event.stream == compute_ ? Edge::reuse
                                                 : Edge::order_of_loads;
    if (!forget(edge)) below_.wait(stream, event, why);
  }
  void sync(Event event) override {
    if (!engine_ends || !forget(Edge::drain)) below_.sync(event);
  }

 private:
  bool forget(Edge edge) {
    if (edge != forgets_) return false;
    ++forgotten;
    return true;
  }

  Edge forgets_;
  // No stream has the number that convert_ has while there is none.
  StreamId compute_ = kHostLine, convert_ = ~StreamId{0};
};

// Races of an engine without `edge`, as text. Its run ends with copies under way, some of them into
// slots whose last load was never read. Its units are dequantised where `converts`.
std::vector<std::string> races_without(Edge edge, std::uint32_t lanes, bool poison,
                                       bool converts = false) {
  CAPTURE(static_cast<int>(edge), lanes, poison, converts);
  const auto sim = make_sim_device(toy_machine());
  const auto audit = make_audit_device(*sim);
  ForgetfulDevice device(*audit, edge);
  {
    Bench bench(device, {.layers = 5, .quantised = converts});
    Walker walker(bench);
    ScriptedPolicy policy;
    if (converts)
      policy.on_transfer = walker.transfer = [](const UnitInfo& unit) {
        return unit.kind == UnitKind::head ? Transfer{}
                                           : Transfer{Encoding::int8, Encoding::native};
      };
    policy.on_layout = [=](const ModelView&, const Budget&) { return Layout{.lanes = lanes}; };
    policy.on_before = [](const Step& step, Actions& actions) {
      for (UnitId unit : step.soon.first(std::min<std::size_t>(3, step.soon.size())))
        static_cast<void>(actions.prefetch(unit));
      if (step.index % 3 == 0) actions.drop(step.soon[1]);
    };
    auto engine = std::make_unique<Engine>(bench.device, bench.compute, bench.store, policy,
                                           "tested", LayerBudget{2},
                                           EngineOptions{.chunk_bytes = 700, .poison = poison});
    std::vector<UnitId> walk;
    for (int token = 0; token < 4; ++token)
      for (UnitId unit = 1; unit <= 11; ++unit) walk.push_back(unit);
    for (auto at = walk.begin(); walk.end() - at > 11; ++at)
      walker.step(*engine, {*at}, {at + 1, walk.end()});
    device.engine_ends = true;
    engine.reset();
    device.engine_ends = false;
  }
  CHECK((device.forgotten > 0) == (edge != Edge::none && (lanes > 0 || edge == Edge::drain) &&
                                   (lanes > 1 || edge != Edge::order_of_loads)));
  std::vector<std::string> out;
  for (const Race& race : audit->races()) out.push_back(race.describe());
  return out;
}

bool any_says(const std::vector<std::string>& races, const std::string& kind,
              const std::string& later, const std::string& earlier) {
  return std::any_of(races.begin(), races.end(), [&](const std::string& race) {
    const std::size_t at = race.find(kind + ": nothing orders " + later);
    return at != std::string::npos && race.find("after " + earlier, at) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("an engine with all its edges has no race") {
  for (const std::uint32_t lanes : {0u, 1u, 2u, 3u})
    for (const bool poison : {false, true})
      for (const bool converts : {false, true})
        CHECK(races_without(Edge::none, lanes, poison, converts) == std::vector<std::string>{});
}

TEST_CASE("an engine that does not wait for a load before its unit is read is caught") {
  for (const std::uint32_t lanes : {1u, 2u, 3u})
    for (const bool poison : {false, true})
      CHECK(
          any_says(races_without(Edge::ready, lanes, poison), "read after write", "read", "load"));
}

TEST_CASE("an engine that does not wait for the last reader of a slot is caught") {
  for (const std::uint32_t lanes : {1u, 2u, 3u}) {
    CHECK(any_says(races_without(Edge::reuse, lanes, false), "write after read", "load", "read"));
    CHECK(any_says(races_without(Edge::reuse, lanes, true), "write after read", "poison", "read"));
  }
}

TEST_CASE("an engine that dequantises without one of its edges is caught") {
  for (const std::uint32_t lanes : {1u, 2u, 3u}) {
    for (const bool poison : {false, true}) {
      CHECK(any_says(races_without(Edge::ready, lanes, poison, true), "read after write", "read",
                     "dequantise"));
      CHECK(any_says(races_without(Edge::staging_reuse, lanes, poison, true), "write after read",
                     "load", "dequantise"));
      CHECK(any_says(races_without(Edge::conversion, lanes, poison, true), "read after write",
                     "dequantise", "load"));
      CHECK(any_says(races_without(Edge::conversion_reuse, lanes, false, true), "write after read",
                     "dequantise", "read"));
    }
  }
}

TEST_CASE("an engine that does not order two loads of a slot is caught") {
  for (const std::uint32_t lanes : {2u, 3u}) {
    CHECK(any_says(races_without(Edge::order_of_loads, lanes, false), "write after write", "load",
                   "load"));
    CHECK(any_says(races_without(Edge::order_of_loads, lanes, true), "write after write", "load",
                   "poison"));
  }
}

TEST_CASE("an engine that frees its slots without draining is caught") {
  for (const std::uint32_t lanes : {0u, 1u, 2u})
    for (const bool poison : {false, true})
      CHECK(any_says(races_without(Edge::drain, lanes, poison), "freed while in use",
                     "release of device memory", "load"));
}

TEST_CASE("copies on the compute stream are in order without any wait") {
  for (const Edge edge : {Edge::ready, Edge::reuse, Edge::order_of_loads})
    CHECK(races_without(edge, 0, true) == std::vector<std::string>{});
}

}  // namespace sluice::test
