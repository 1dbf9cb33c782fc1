// What a simulated run of a dense model takes, against what can be calculated by hand.
#include <algorithm>
#include <cmath>

#include "core/device/sim_device.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kPrompt = 16, kDecoded = 64;

struct Rates {
  double link_gbps, memory_gbps;
};

Machine machine_with(const Rates& rates) {
  return {.name = "made up",
          .device_memory_bytes = 1ull << 40,
          .host_memory_bytes = 1ull << 40,
          .h2d = {{{64 << 10, rates.link_gbps}}},
          .d2h = {{{64 << 10, rates.link_gbps}}},
          .memory_gbps = rates.memory_gbps,
          .matrix_tflops = 1000,
          .host_read_gbps = 50,
          .op_ns = 2500,
          .copy_ns = 0,
          .enqueue_ns = 2000,
          .event_ns = 500,
          .sync_ns = 8000};
}

// Bytes of weights that a token reads on the device, from the shape's figures alone.
struct Weights {
  double layer = 0, head = 0;
};
Weights weights_of(const ModelConfig& c) {
  const double hidden = c.hidden, q = c.q_size(), kv = c.kv_size(), inter = c.intermediate;
  return {2 * (hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inter),
          2 * hidden * static_cast<double>(c.vocab)};
}

// The formula. With N layers' worth of slots of L, of which `depth` rotate, L - (N - depth) layers
// cross the link for each token, none when all fit. Beside it the device reads every weight and, on
// average, half of the final length's keys and values, five operations a layer. Whichever takes
// longer hides the other.
double token_ns(const ModelConfig& c, const Machine& machine, std::uint32_t budget,
                std::uint32_t depth) {
  const Weights weights = weights_of(c);
  const double layers = c.layers;
  const double streamed = budget >= layers ? 0 : layers - (budget - std::min(depth, budget));
  const double link = streamed * weights.layer / machine.h2d.peak_gbps();
  const double positions = kPrompt + kDecoded / 2.0;
  const double read = layers * (weights.layer + 2 * 2 * c.kv_size() * positions) + weights.head;
  const double operations = 5 * layers + 4;
  const double compute =
      read / machine.memory_gbps + operations * static_cast<double>(machine.op_ns);
  return std::max(link, compute);
}

double simulated_token_ns(ModelRig& rig, std::uint32_t budget, std::uint32_t depth) {
  const PolicyPtr policy = policy_of({"ring_prefetch", depth});
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, "ring_prefetch",
                LayerBudget{budget});
  const auto decoder = rig.decoder({.context = kPrompt + kDecoded});
  Generator generator(rig.device(), *decoder, engine, {});
  const GenerationRequest request =
      greedy(made_up_prompt(kPrompt, 1, rig.config().vocab), kDecoded);
  const GenerationResult result = generator.run({&request, 1}, 1).front();
  return static_cast<double>(result.total_ns - result.first_token_ns) / (kDecoded - 1);
}

}  // namespace

TEST_CASE("ring_prefetch takes the longer of link and device, within 2 % of the formula") {
  // Links as they are, far below the device's memory; and one above it, where it is the device that
  // takes longer. There an MLP that arrives during the one before must have a slot of its own: with
  // one slot of each kind neither hides the other.
  const Rates rates[] = {{12, 230}, {25, 400}, {55, 4240}, {100, 60}};
  for (const char* shape : {"qwen3-1.7b", "qwen3-8b", "qwen3-14b"}) {
    for (const Rates& one : rates) {
      const Machine machine = machine_with(one);
      ModelRig rig(SyntheticLocation{shape}, make_sim_device(machine));
      const auto layers = static_cast<std::uint32_t>(rig.config().layers);
      for (const std::uint32_t depth : {1u, 2u}) {
        for (const std::uint32_t budget : {1u, 2u, 4u, 8u, 16u, layers - 4, layers}) {
          if (one.link_gbps > one.memory_gbps && std::min(depth, budget) < 2) continue;
          const double formula = token_ns(rig.config(), machine, budget, depth);
          const double simulated = simulated_token_ns(rig, budget, depth);
          CAPTURE(shape, one.link_gbps, one.memory_gbps, depth, budget, formula, simulated);
          CHECK(std::abs(simulated / formula - 1) < 0.02);
        }
      }
    }
  }
}

}  // namespace sluice::test
