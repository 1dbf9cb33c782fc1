// Machines that `sim` imitates: YAML files, those of configs/machines by name.
#pragma once
#include <span>
#include <string>
#include <variant>

#include "core/device/machine.hpp"
#include "harness/keys.hpp"

namespace sluice {

// A key of a machine's file and the figure that it gives. A key without a default is needed.
struct MachineKey {
  using Figure = std::variant<std::string Machine::*, std::uint64_t Machine::*, double Machine::*,
                              RateCurve Machine::*>;
  Key key;
  Figure figure;
};
std::span<const MachineKey> machine_keys();

// Throws InputError with the place for whatever is not right or missing.
Machine read_machine(const YamlNode& root);

// `name` of configs/machines, or the path of a file: what has a slash or ends in .yaml. Throws
// InputError at `place` where there is no such machine, with the nearest names.
Machine load_machine(const std::string& name, const Origin& place);

// The names in configs/machines, for messages: "h200, rtx3070, ...".
std::string known_machines();

// Every figure by its key.
Json to_json(const Machine& machine);

}  // namespace sluice
