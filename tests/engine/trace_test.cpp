// A trace's totals are the engine's book and the device's clock.
#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#include "core/device/trace_device.hpp"
#include "tests/catch.hpp"
#include "tests/device/trace_file.hpp"
#include "tests/engine/rig.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

void check_totals(IDevice& on, bool in_virtual_time, IOffloadPolicy& policy, std::uint32_t budget) {
  const ScratchDir dir;
  const auto traced = make_trace_device(on, dir.path() / "t.json", {});
  Counters counters;
  std::uint64_t loaded_before = 0, stall_ns = 0;
  std::uint32_t lanes = 0;
  {
    Bench bench(*traced, {.layers = 4, .uneven = true});
    Walker walker(bench);
    traced->begin_section("setup");
    Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{budget},
                  {.chunk_bytes = 700, .guess_window_bytes = 900});
    loaded_before = engine.counters().kept_bytes + engine.shape().head_bytes;
    traced->begin_section("run");
    walker.run(engine, 5);
    traced->begin_section("end");
    counters = engine.counters();
    lanes = engine.shape().lanes;
    stall_ns = bench.device.stall_ns(bench.compute);
  }
  traced->finish();
  const TraceFile trace(dir.path() / "t.json");
  const TraceSpan* setup = trace.section("setup");
  const TraceSpan* run = trace.section("run");
  REQUIRE(setup);
  REQUIRE(run);
  CHECK(trace.bytes("load", *setup) == loaded_before);
  CHECK(trace.bytes("load", *run) == counters.h2d_bytes - counters.cancelled_bytes);
  CHECK(trace.stall_ns(*run) == stall_ns);
  // Copies on the compute stream are not waited for. In virtual time the others always are; on the
  // CPU a thread that comes late finds them done.
  if (lanes == 0 || in_virtual_time) CHECK((stall_ns > 0) == (lanes > 0));
}

}  // namespace

TEST_CASE("a trace of an engine has the bytes of its book and the stalls of its device") {
  for (const std::uint32_t budget : {1u, 2u, 3u}) {
    CAPTURE(budget);
    NaivePolicy naive;
    PrefetchPolicy prefetch(2, 2);
    KeepPolicy keep;
    ChaosPolicy chaos(budget);
    for (IOffloadPolicy* policy :
         std::initializer_list<IOffloadPolicy*>{&naive, &prefetch, &keep, &chaos}) {
      check_totals(*make_sim_device(toy_machine()), true, *policy, budget);
      check_totals(*make_cpu_device({.memory_limit = {}, .link_gbps = 0.05}), false, *policy,
                   budget);
    }
  }
}

}  // namespace sluice::test
