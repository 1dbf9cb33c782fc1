#include "harness/probe.hpp"

#include <filesystem>

#include "core/atomic_file.hpp"
#include "core/device/make_device.hpp"
#include "core/error.hpp"
#include "harness/build_info.hpp"
#include "harness/commands/commands.hpp"
#include "harness/machine_file.hpp"
#include "harness/machine_text.hpp"
#include "harness/progress.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct ProbeCommand {
  std::string device = "cpu", to;
  std::optional<double> link_gbps;
};

void execute(const ProbeCommand& command) {
  const fs::path to = command.to;
  const std::string name = to.stem().string();
  if (name.empty()) throw InputError("--to {}: must be the path of a file", command.to);
  if (command.link_gbps && command.device != name_of(DeviceKind::cpu))
    throw InputError("--link-gbps slows the cpu device down; {} has a link of its own",
                     command.device);
  AtomicFile file(to);  // before what takes half a minute
  DeviceSpec spec;
  spec.kind = command.device == name_of(DeviceKind::cuda) ? DeviceKind::cuda : DeviceKind::cpu;
  const std::unique_ptr<IDevice> device = make_device(spec);
  Probed probed =
      probe(*device, name, [](const char* what) { say(fmt::format("measuring {}", what)); });

  probed.machine.link_limit_gbps = command.link_gbps.value_or(0);
  std::string source = fmt::format("Measured by sluice {} on the device {}",
                                   build_info()["version"].get<std::string>(), command.device);
  if (command.link_gbps)
    source += fmt::format(", for a link slowed down to {} GB/s", *command.link_gbps);
  const std::string text =
      machine_text(probed, {device->info().name, source + fmt::format(", {}.", utc_now())});
  read_machine(parse_yaml(text, command.to));
  file.write(text.data(), text.size());
  file.finish();
  fmt::print("{}", text);
  say(fmt::format("{} is written; `sluice predict X.yaml --machine {}` uses it", command.to,
                  command.to.ends_with(".yaml") ? command.to : "./" + command.to));
}

}  // namespace

void add_probe(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "probe", "measures this machine and writes its figures as a file for `sim` and `predict`");
  auto options = std::make_shared<ProbeCommand>();
  command.add_option("--device", options->device, "cpu or cuda: what to measure")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command
      .add_option("--link-gbps", options->link_gbps,
                  "cpu only: for runs whose link is slowed down to this rate")
      ->check(CLI::PositiveNumber);
  command.add_option("--to", options->to, "where the figures go; its name is the machine's")
      ->type_name("FILE.yaml")
      ->required();
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
