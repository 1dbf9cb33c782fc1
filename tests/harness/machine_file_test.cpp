#include "harness/machine_file.hpp"

#include <filesystem>
#include <string>

#include "harness/paths.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

const std::string kGood =
    "name: m\n"
    "device_memory: 8GiB\n"
    "host_memory: 32GiB\n"
    "h2d_gbps: {64KiB: 13.5, 1MiB: 24, 4MiB: 25}\n"
    "d2h_gbps: {1MiB: 12}\n"
    "memory_gbps: 400\n"
    "matrix_tflops: 40.5\n"
    "host_read_gbps: 35\n"
    "op_ns: 3000\n"
    "copy_ns: 0\n"
    "enqueue_ns: 2000\n"
    "event_ns: 500\n"
    "sync_ns: 8000\n";

Machine read_text(const std::string& text) { return read_machine(parse_yaml(text, "m.yaml")); }

std::string with(const std::string& line, const std::string& instead) {
  std::string text = kGood;
  const std::size_t at = text.find(line + ":");
  REQUIRE(at != std::string::npos);
  return text.replace(at, text.find('\n', at) + 1 - at, instead);
}

}  // namespace

TEST_CASE("a machine's file gives every figure") {
  const Machine machine = read_text(kGood);
  CHECK(machine.name == "m");
  CHECK(machine.device_memory_bytes == 8ull << 30);
  CHECK(machine.host_memory_bytes == 32ull << 30);
  REQUIRE(machine.h2d.points.size() == 3);
  CHECK(machine.h2d.points[0].bytes == 64u << 10);
  CHECK(machine.h2d.points[0].gbps == 13.5);
  CHECK(machine.h2d.peak_gbps() == 25);
  CHECK(machine.d2h.peak_gbps() == 12);
  CHECK(machine.memory_gbps == 400);
  CHECK(machine.matrix_tflops == 40.5);
  CHECK(machine.host_read_gbps == 35);
  CHECK(machine.op_ns == 3000);
  CHECK(machine.copy_ns == 0);
  CHECK(machine.enqueue_ns == 2000);
  CHECK(machine.event_ns == 500);
  CHECK(machine.sync_ns == 8000);
}

TEST_CASE("a machine's link and kernels are as fast as they are unless its file says so") {
  CHECK(read_text(kGood).compute_beside_h2d == 1);
  CHECK(read_text(kGood).h2d_beside_compute == 1);
  CHECK(read_text(kGood).link_gbps() == 25);
  CHECK(read_text(kGood + "link_limit_gbps: 4\n").link_gbps() == 4);
  CHECK(read_text(kGood + "link_limit_gbps: 40\n").link_gbps() == 25);
  const Machine shared = read_text(kGood + "compute_beside_h2d: 0.75\nh2d_beside_compute: 0.5\n");
  CHECK(shared.compute_beside_h2d == 0.75);
  CHECK(shared.h2d_beside_compute == 0.5);
}

TEST_CASE("what is wrong in a machine's file is an error with its place") {
  struct Case {
    std::string text;
    const char* message;
  };
  const Case cases[] = {
      {"", "m.yaml:1:1: a machine is a map of figures, not nothing"},
      {"[1]\n", "m.yaml:1:1: a machine is a map of figures, not a list"},
      {with("op_ns", ""), "m.yaml:1:1: the machine has no op_ns"},
      {with("op_ns", "opns: 3\n"), "m.yaml:9:1: unknown key 'opns' (did you mean 'op_ns'?)"},
      {with("op_ns", "op_ns: -1\n"), "m.yaml:9:8: op_ns must be an integer, 0 to"},
      {with("op_ns", "op_ns: 1.5\n"), "not the number 1.5"},
      {with("memory_gbps", "memory_gbps: 0\n"),
       "m.yaml:6:14: memory_gbps must be a number, above 0"},
      {kGood + "h2d_beside_compute: 0\n", "h2d_beside_compute must be a number, above 0"},
      {kGood + "h2d_beside_compute: 1.5\n", "above 0 to 1, not 1.5"},
      {with("device_memory", "device_memory: lots\n"), "a size like 8GiB"},
      {with("h2d_gbps", "h2d_gbps: 25\n"), "m.yaml:4:11: h2d_gbps must be a map from sizes"},
      {with("h2d_gbps", "h2d_gbps: {}\n"), "h2d_gbps must be a map from sizes"},
      {with("h2d_gbps", "h2d_gbps: {big: 25}\n"), "m.yaml:4:12: in h2d_gbps, 'big' must be a size"},
      {with("h2d_gbps", "h2d_gbps: {1MiB: fast}\n"),
       "m.yaml:4:18: h2d_gbps at 1MiB must be a number, above 0"},
      {with("h2d_gbps", "h2d_gbps: {1MiB: 25, 64KiB: 13}\n"),
       "m.yaml:4:22: h2d_gbps must ascend in size"},
      // 2 MiB at 60 GB/s would be there before 1 MiB at 20.
      {with("h2d_gbps", "h2d_gbps: {1MiB: 20, 2MiB: 60}\n"), "no larger copy may take less time"},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    CHECK_THAT(input_error([&] { read_text(one.text); }), Contains(one.message));
  }
}

TEST_CASE("machines are found by name and by path") {
  std::size_t machines = 0;
  for (const auto& entry : fs::directory_iterator(configs_directory() / "machines")) {
    const std::string name = entry.path().stem();
    INFO(name);
    ++machines;
    CHECK(load_machine(name, {}).name == name);
    CHECK_THAT(known_machines(), Contains(name));
  }
  CHECK(machines >= 7);
  const test::ScratchDir dir;
  dir.write("mine.yaml", kGood);
  CHECK(load_machine((dir.path() / "mine.yaml").string(), {}).name == "m");
  CHECK(load_machine("mine.yaml", {(dir.path() / "x.yaml").string(), 3, 4}).name == "m");
  CHECK_THAT(input_error([] {
               load_machine("rtx307", {"x.yaml", 3, 4});
             }),
             StartsWith("x.yaml:3:4: no machine 'rtx307'") && Contains("rtx3070"));
  CHECK_THAT(input_error([] {
               load_machine("none/of.yaml", {"x.yaml", 3, 4});
             }),
             StartsWith("x.yaml:3:4: the machine") && Contains("does not exist"));
}

TEST_CASE("a machine as JSON has every key of its file") {
  const Json json = to_json(read_text(kGood));
  CHECK(json.size() == machine_keys().size());
  CHECK(json["op_ns"] == 3000);
  CHECK(json["h2d_gbps"] == Json::parse("[[65536, 13.5], [1048576, 24.0], [4194304, 25.0]]"));
}

}  // namespace sluice
