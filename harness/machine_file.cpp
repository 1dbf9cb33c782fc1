#include "harness/machine_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/named_files.hpp"
#include "core/nearest.hpp"
#include "harness/paths.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr double kMostBytes = 9.2e18, kMostNs = 1e9, kMostRate = 1e6;

constexpr Key size_key(std::string_view path, std::string_view help) {
  return {.path = path, .type = KeyType::size, .min = 1, .max = kMostBytes, .help = help};
}
constexpr Key rate_key(std::string_view path, std::string_view help) {
  return {.path = path, .type = KeyType::real, .max = kMostRate, .above_min = true, .help = help};
}
constexpr Key curve_key(std::string_view path, std::string_view help) {
  return {.path = path, .type = KeyType::rates, .max = kMostRate, .above_min = true, .help = help};
}
constexpr Key ns_key(std::string_view path, std::string_view help) {
  return {.path = path, .type = KeyType::integer, .max = kMostNs, .help = help};
}

constexpr Key share_key(std::string_view path, std::string_view help) {
  return {.path = path,
          .type = KeyType::real,
          .fallback = "1",
          .max = 1,
          .above_min = true,
          .help = help};
}

constexpr auto kMachineKeys = std::to_array<MachineKey>({
    {{.path = "name", .help = "what records call it"}, &Machine::name},
    {size_key("device_memory", "of the device"), &Machine::device_memory_bytes},
    {size_key("host_memory", "that weights can be pinned in"), &Machine::host_memory_bytes},
    {curve_key("h2d_gbps", "pinned host memory to the device, by size of copy"), &Machine::h2d},
    {curve_key("d2h_gbps", "and back"), &Machine::d2h},
    {rate_key("memory_gbps", "device memory, read + written"), &Machine::memory_gbps},
    {rate_key("matrix_tflops", "dense products"), &Machine::matrix_tflops},
    {rate_key("host_read_gbps", "host memory, by all of the processor's threads"),
     &Machine::host_read_gbps},
    {ns_key("op_ns", "fixed cost of an operation on its stream"), &Machine::op_ns},
    {ns_key("copy_ns", "fixed cost of a copy on the link, beyond the curve"), &Machine::copy_ns},
    {ns_key("enqueue_ns", "the host's cost of an operation"), &Machine::enqueue_ns},
    {ns_key("event_ns", "the host's cost of recording or waiting for an event"),
     &Machine::event_ns},
    {ns_key("sync_ns", "the host's cost of waking up after a wait"), &Machine::sync_ns},
    {{.path = "link_limit_gbps",
      .type = KeyType::real,
      .fallback = "0",
      .max = kMostRate,
      .help = "a link slowed down on purpose; 0: it is not"},
     &Machine::link_limit_gbps},
    {share_key("compute_beside_h2d", "of its rate that an operation keeps while the link works"),
     &Machine::compute_beside_h2d},
    {share_key("h2d_beside_compute", "of its rate that the link keeps while an operation runs"),
     &Machine::h2d_beside_compute},
});

std::vector<std::string> names_of_keys() {
  std::vector<std::string> names;
  for (const MachineKey& key : kMachineKeys) names.emplace_back(key.key.path);
  return names;
}

struct Put {
  Machine& machine;
  const Json& value;

  void operator()(RateCurve Machine::*figure) const {
    for (const Json& point : value)
      (machine.*figure).points.push_back({point[0].get<std::uint64_t>(), point[1].get<double>()});
  }
  template <typename T>
  void operator()(T Machine::*figure) const {
    machine.*figure = value.get<T>();
  }
};

struct Get {
  const Machine& machine;

  Json operator()(RateCurve Machine::*figure) const {
    Json points = Json::array();
    for (const RateCurve::Point& point : (machine.*figure).points)
      points.push_back({point.bytes, point.gbps});
    return points;
  }
  template <typename T>
  Json operator()(T Machine::*figure) const {
    return machine.*figure;
  }
};

fs::path directory() { return configs_directory() / "machines"; }

}  // namespace

std::span<const MachineKey> machine_keys() { return kMachineKeys; }

Machine read_machine(const YamlNode& root) {
  if (root.kind != YamlNode::Kind::map)
    throw InputError("{}: a machine is a map of figures, not {}", to_string(root.place),
                     describe(root));
  const std::vector<std::string> names = names_of_keys();
  for (const YamlNode::Key& given : root.keys)
    if (std::find(names.begin(), names.end(), given.name) == names.end())
      throw InputError("{}: unknown key '{}'{}; known are: {}", to_string(given.place), given.name,
                       did_you_mean(given.name, names), fmt::join(names, ", "));
  Machine machine;
  for (const auto& [key, figure] : kMachineKeys) {
    const YamlNode* node = root.find(key.path);
    if (!node && !key.fallback.empty()) continue;  // as Machine has it
    if (!node)
      throw InputError("{}: the machine has no {} ({}): {}", to_string(root.place), key.path,
                       key.help, expected(key));
    std::visit(Put{machine, check_value(key, *node)}, figure);
  }
  return machine;
}

Machine load_machine(const std::string& name, const Origin& place) {
  if (is_path(name, ".yaml"))
    return read_machine(load_yaml(find_path(name, place, "the machine").string()));
  const std::vector<std::string> known = names_in(directory(), ".yaml");
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw InputError("{}: no machine '{}' in {}{}; known are: {}; or give a file of your own",
                     place.file.empty() ? "device.machine" : to_string(place), name,
                     directory().string(), did_you_mean(name, known), fmt::join(known, ", "));
  return read_machine(load_yaml((directory() / (name + ".yaml")).string()));
}

std::string known_machines() {
  return fmt::format("{}", fmt::join(names_in(directory(), ".yaml"), ", "));
}

Json to_json(const Machine& machine) {
  Json out = Json::object();
  for (const auto& [key, figure] : kMachineKeys) out[key.path] = std::visit(Get{machine}, figure);
  return out;
}

}  // namespace sluice
