#include "harness/probe.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "harness/machine_file.hpp"
#include "harness/machine_text.hpp"
#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {

TEST_CASE("what is written of a machine is what is read back") {
  Probed probed;
  Machine& machine = probed.machine;
  machine = {.name = "m",
             .device_memory_bytes = 8ull << 30,
             .host_memory_bytes = 24105ull << 20,
             .h2d = {{{64 << 10, 13.5}, {1 << 20, 24}, {32 << 20, 25.25}}},
             .d2h = {{{1 << 20, 12}}},
             .memory_gbps = 400.5,
             .matrix_tflops = 0.0125,
             .host_read_gbps = 35,
             .op_ns = 3000,
             .copy_ns = 1,
             .enqueue_ns = 2000,
             .event_ns = 500,
             .sync_ns = 8000,
             .link_limit_gbps = 4,
             .compute_beside_h2d = 0.75,
             .h2d_beside_compute = 0.5};
  probed.host_reads = {{1, 20}, {2, 35}};
  const std::string text = machine_text(probed, {"A machine.", "Measured."});
  INFO(text);
  CHECK_THAT(text, StartsWith("# A machine.\n# Measured.\nname: m\n") &&
                       Contains("host_read_gbps: 35  # measured; 1 thread: 20, 2 threads: 35\n"));
  CHECK_THAT(text, Contains("link_limit_gbps: 4  # as asked\n"));
  CHECK(to_json(read_machine(parse_yaml(text, "m.yaml"))) == to_json(machine));
}

TEST_CASE("figures rounded in a machine's file keep copies of all sizes in order") {
  Probed probed;
  Machine& machine = probed.machine;
  machine.name = "m";
  machine.memory_gbps = machine.matrix_tflops = machine.host_read_gbps = 1;
  machine.device_memory_bytes = machine.host_memory_bytes = 1ull << 30;
  // The smaller copies take just as long as the larger ones.
  machine.h2d = {{{256 << 10, 1.86414}, {1 << 20, 4 * 1.86414}, {4 << 20, 16 * 1.86414}}};
  machine.d2h = {{{1 << 20, 12}}};
  const std::string text = machine_text(probed, {"A machine.", "Measured."});
  INFO(text);
  CHECK_THAT(text, Contains("h2d_gbps: {256KiB: 1.864, 1MiB: 7.45, 4MiB: 29.8}"));
  CHECK_NOTHROW(read_machine(parse_yaml(text, "m.yaml")));
}

TEST_CASE("probe measures nothing when its file cannot be written") {
  const test::ScratchDir dir;
  const test::Finished done = test::run_sluice({"probe", "--to", dir.path() / "none" / "m.yaml"});
  CHECK(done.exit_code == 2);
  CHECK_THAT(done.err, Contains("cannot be written") && !Contains("measuring"));
}

TEST_CASE("probe writes a machine that predict takes") {
  const test::ScratchDir dir;
  const std::string to = dir.path() / "mine.yaml";
  const test::Finished done = test::run_sluice({"probe", "--link-gbps", "4", "--to", to});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(done.out == test::bytes_of(to));
  const Machine machine = load_machine(to, {});
  CHECK(machine.name == "mine");
  CHECK(machine.link_limit_gbps == 4);
  CHECK(machine.enqueue_ns > 0);
  for (const double kept : {machine.compute_beside_h2d, machine.h2d_beside_compute}) {
    CHECK(kept > 0);
    CHECK(kept <= 1);
  }

  const std::string yaml = dir.write("x.yaml",
                                     "model: {synthetic: tiny-dense}\n"
                                     "generation: {prompts: [{random: 4}], max_new_tokens: 4}\n");
  const test::Finished predicted =
      test::run_sluice({"predict", yaml, "--machine", to, "--gpu-layer-budget", "2", "--json"});
  INFO(predicted.err);
  CHECK(predicted.exit_code == 0);
  CHECK(test::run_sluice({"probe", "--link-gbps", "0", "--to", to}).exit_code == 2);
  const test::Finished cuda =
      test::run_sluice({"probe", "--device", "cuda", "--link-gbps", "4", "--to", to});
  CHECK(cuda.exit_code == 2);
  CHECK_THAT(cuda.err, Contains("cuda has a link of its own"));
}

}  // namespace sluice
