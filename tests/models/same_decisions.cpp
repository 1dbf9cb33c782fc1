#include "tests/models/same_decisions.hpp"

#include <sstream>
#include <string>

#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/engine/engine.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"

namespace sluice::test {
namespace {

Machine machine_with(double link_gbps, double memory_gbps) {
  return {.name = "made up",
          .device_memory_bytes = 1ull << 30,
          .host_memory_bytes = 1ull << 30,
          .h2d = {{{4096, link_gbps}}},
          .d2h = {{{4096, link_gbps}}},
          .memory_gbps = memory_gbps,
          .matrix_tflops = 1,
          .host_read_gbps = 10,
          .op_ns = 1000,
          .copy_ns = 500,
          .enqueue_ns = 200,
          .event_ns = 100,
          .sync_ns = 5000};
}

struct Decided {
  Counters book;
  std::string log;
};

Decided run(ModelRig& rig, const PolicyCase& one, std::uint32_t budget, std::uint32_t batch) {
  const PolicyPtr policy = policy_of(one);
  std::ostringstream out;
  DecisionLog log(out);
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, one.name, LayerBudget{budget},
                {.chunk_bytes = 4096, .decisions = &log});
  const auto decoder = rig.decoder({.context = 80, .sequences = batch});
  Generator generator(rig.device(), *decoder, engine, {});
  generator.run(requests_for(rig.config().vocab), batch);
  return {engine.counters(), out.str()};
}

}  // namespace

std::size_t compare_decisions(const std::filesystem::path& checkpoint) {
  ModelRig cpu(checkpoint);
  ModelRig slow_link(checkpoint, {}, make_sim_device(machine_with(0.01, 1)));
  ModelRig fast_link(checkpoint, {}, make_sim_device(machine_with(10, 0.1)));
  const auto layers = static_cast<std::uint32_t>(cpu.config().layers);
  std::size_t compared = 0;
  for (const std::uint32_t batch : {1u, 3u})
    for (const PolicyCase& one : policy_cases())
      for (std::uint32_t budget = 1; budget <= layers + 1; ++budget) {
        CAPTURE(checkpoint.filename(), one.name, one.depth, budget, batch);
        const Decided expected = run(cpu, one, budget, batch);
        CHECK_FALSE(expected.log.empty());
        for (ModelRig* sim : {&slow_link, &fast_link}) {
          Decided decided = run(*sim, one, budget, batch);
          // How far a guess got depends on the link; nothing else may.
          decided.book.cancelled_bytes = expected.book.cancelled_bytes;
          CHECK(decided.book == expected.book);
          CHECK((decided.log == expected.log));
          ++compared;
        }
      }
  return compared;
}

}  // namespace sluice::test
