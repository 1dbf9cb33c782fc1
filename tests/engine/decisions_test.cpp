// Decisions written down, read back and played again.
#include <algorithm>
#include <sstream>

#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/engine/playback_policy.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"
#include "tests/messages.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

struct Run {
  std::string log;
  Counters counters;
};

Run run(IDevice& on, const Shape& shape, IOffloadPolicy& policy, const BudgetSpec& budget,
        std::uint32_t tokens = 3) {
  std::ostringstream out;
  DecisionLog log(out);
  Bench bench(on, shape);
  Walker walker(bench);
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", budget,
                {.chunk_bytes = 700, .guess_window_bytes = 900, .decisions = &log});
  walker.run(engine, tokens);
  Run done{out.str(), engine.counters()};
  done.counters.cancelled_bytes = 0;  // how far a guess got is the link's, not the policy's
  return done;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

// Units of the two-layer model: 1 3 attention, 2 4 mlp, 5 the head.
TEST_CASE("a log says what was wished, refused, evicted and laid out") {
  RecordingDevice device;
  ScriptedPolicy policy;
  policy.on_layout = [](const ModelView&, const Budget&) {
    Layout layout{.keep = {3}, .lanes = 2};
    layout.rotating[UnitKind::mlp] = 1;
    return layout;
  };
  policy.on_before = [](const Step& step, Actions& actions) {
    if (step.index == 0) {
      static_cast<void>(actions.prefetch(2));
      static_cast<void>(actions.prefetch(4));
      static_cast<void>(actions.prefetch(3));
      static_cast<void>(actions.prefetch(0));
      actions.drop(3);
    }
    if (step.index == 2) actions.drop(2);
  };
  policy.on_victim = [](const UnitInfo&, const Candidates&) { return UnitId{1}; };
  policy.on_place = [](const UnitInfo& unit, const Step&) {
    return unit.id == 4 ? Place::host : Place::device;
  };
  const Run done = run(device, {.layers = 2}, policy, LayerBudget{2}, 1);
  CHECK(done.log == R"({"transfer":{"wire":"native","resident":"native"},"units":[1,5]}
{"layout":{"keep":[3],"rotating":{"mlp":1},"lanes":2,"blocking":false}}
{"step":0,"phase":"decode","tokens":1,"needs":[1]}
{"step":0,"wish":2,"answer":"accepted"}
{"step":0,"victim":1,"for":4,"refused":true}
{"step":0,"wish":4,"answer":"no_slot"}
{"step":0,"wish":3,"answer":"already"}
{"step":0,"wish":0,"answer":"refused"}
{"step":0,"drop":3,"refused":true}
{"step":1,"phase":"decode","tokens":1,"needs":[2]}
{"step":2,"phase":"decode","tokens":1,"needs":[3]}
{"step":2,"drop":2,"refused":false}
{"step":2,"evicted":2,"for":null}
{"step":3,"phase":"decode","tokens":1,"needs":[4]}
{"step":3,"place":4,"at":"host","refused":true}
{"step":4,"phase":"decode","tokens":1,"needs":[5]}
)");
  CHECK(done.counters.refused == 4);
}

TEST_CASE("whatever was decided is played back to the line, on any device") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    const bool experts = seed % 2 == 0;
    const Shape shape{
        .layers = 3, .experts = experts ? 4 : 0, .experts_per_token = experts ? 2 : 0};
    const BudgetSpec budget =
        experts ? BudgetSpec(ExpertBudget{1 + static_cast<std::uint32_t>(seed % 7)})
                : BudgetSpec(LayerBudget{1 + static_cast<std::uint32_t>(seed % 3)});
    ChaosPolicy chaos(seed);
    RecordingDevice recorder({.reach = RecordingDevice::Reach::random, .seed = seed});
    const Run recorded = run(recorder, shape, chaos, budget);
    CHECK(count(recorded.log, "\"refused\"") - count(recorded.log, "\"refused\":false") ==
          recorded.counters.refused);
    CHECK(count(recorded.log, "\"needs\"") > 10);

    const auto cpu = make_cpu_device();
    const auto sim = make_sim_device(toy_machine());
    for (IDevice* device : {cpu.get(), static_cast<IDevice*>(sim.get())}) {
      PlaybackPolicy playback(read_decisions(recorded.log, "log"));
      const Run played = run(*device, shape, playback, budget);
      CHECK(playback.difference_at_end() == "");
      CHECK(played.log == recorded.log);
      CHECK(played.counters == recorded.counters);
    }
  }
}

TEST_CASE("a run that is not the recorded one says where it goes another way") {
  PrefetchPolicy policy;
  RecordingDevice device;
  const std::string log = run(device, {.layers = 3}, policy, LayerBudget{2}).log;
  const auto difference = [&](const std::string& text, std::int32_t layers, std::uint32_t budget,
                              std::uint32_t tokens) {
    PlaybackPolicy playback(read_decisions(text, "log"));
    RecordingDevice other;
    run(other, {.layers = layers}, playback, LayerBudget{budget}, tokens);
    return playback.difference_at_end();
  };
  CHECK(difference(log, 3, 2, 3) == "");
  CHECK(difference(log, 3, 2, 4) ==
        "step 21: step 21 (decode, 1 tokens) needs [1], and the record has ended before");
  CHECK(difference(log, 3, 2, 2) == "the run ends after step 13, the record has 7 more");
  CHECK(difference(log, 4, 2, 3) == "step 5: unit 7 needs a slot, in the record none does");
  CHECK(difference(log, 3, 1, 3) == "step 1: unit 3 needs a slot, in the record none does");
  CHECK(difference(log, 3, 3, 3) != "");
}

TEST_CASE("a line that is no decision is refused with its place") {
  const auto message = [](const std::string& line) {
    return input_error([&] { read_decisions("{\"decisions\":1}\n" + line, "F"); });
  };
  CHECK(message("{\"step\":").find("F:2:9: not JSON: ") == 0);
  CHECK(message(R"({"step":0,"wish":1,"answer":"accepted"})") ==
        "F:2: step: no step stands before this decision");
  const std::string step = R"({"step":0,"phase":"decode","tokens":1,"needs":[1]})"
                           "\n";
  CHECK(message(step + R"({"step":0,"wish":1,"answer":"perhaps"})") ==
        "F:3: answer is 'perhaps'; it may be: accepted, already, no_slot, refused");
  CHECK(message(step + R"({"step":0,"wish":-1,"answer":"accepted"})").find("F:3: wish is -1") == 0);
  CHECK(message(step + R"({"step":0})") == "F:3: step: this line is no decision");
  CHECK(message(R"({"step":0,"phase":"decode","tokens":1,"needs":["x"]})")
            .find("F:2: needs has \"x\" in it") == 0);
  CHECK(message(R"({"transfer":{"wire":"native","resident":"native"},"units":[1]})") ==
        "F:2: units is [1]; the first and the last of a run are needed");
  CHECK(message(R"({"layout":{"keep":[],"rotating":{},"lanes":1}})") ==
        "F:2: layout.blocking is missing");
}

}  // namespace sluice::test
