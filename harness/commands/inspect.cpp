#include <fmt/core.h>

#include <array>
#include <limits>

#include "core/device/sim_device.hpp"
#include "core/engine/budget.hpp"
#include "core/error.hpp"
#include "harness/commands/commands.hpp"
#include "harness/commands/options.hpp"
#include "harness/results_file.hpp"
#include "harness/value.hpp"
#include "models/decoder.hpp"

namespace sluice {
namespace {

constexpr std::uint32_t kInspectedContext = 4096;
constexpr std::array<std::uint64_t, 8> kMemoryGib{2, 4, 6, 8, 12, 16, 24, 48};

struct InspectCommand {
  std::string model, dtype;
  std::uint32_t context = 0;  // 0: 4096, or what the model allows
  bool json = false;
};

// Sizes of a model's units as they would be packed; no weights are read.
class Sizes {
 public:
  Sizes(const Model& model, DType dtype)
      : device_(make_sim_device(unlimited())),
        store_(*device_, model.source.plan, *model.source.tensors, {dtype, 0, {}}) {}
  const WeightStore& store() const { return store_; }

 private:
  static Machine unlimited() {
    Machine machine;
    machine.name = "inspect";
    machine.device_memory_bytes = machine.host_memory_bytes = 1ull << 62;
    machine.h2d.points = machine.d2h.points = {{1, 1}};
    machine.memory_gbps = machine.matrix_tflops = machine.host_read_gbps = 1;
    return machine;
  }

  std::unique_ptr<IDevice> device_;
  WeightStore store_;
};

Settings inspect_settings(const InspectCommand& command) {
  std::vector<Override> overrides = model_overrides(command.model, "inspect");
  if (!command.dtype.empty())
    overrides.push_back(plain_override("dtype", command.dtype, "--dtype"));
  return read_document(YamlNode{}, overrides).base;
}

Json units_of(const ModelView& view) {
  Json kinds = Json::array();
  for (UnitKind kind : {UnitKind::embedding, UnitKind::attention, UnitKind::mlp, UnitKind::expert,
                        UnitKind::head}) {
    std::uint64_t count = 0, total = 0, largest = 0;
    for (const UnitInfo& unit : view.units) {
      if (unit.kind != kind) continue;
      ++count;
      total += unit.size(Encoding::native);
      largest = std::max(largest, unit.size(Encoding::native));
    }
    if (count > 0)
      kinds.push_back({{"kind", name_of(kind)},
                       {"count", count},
                       {"largest_bytes", largest},
                       {"total_bytes", total}});
  }
  return kinds;
}

Json report_of(const InspectCommand& command) {
  ModelCache models;
  const Experiment experiment = make_experiment(inspect_settings(command), "");
  const Model& model = models.open(experiment.model);
  const ModelConfig& config = model.source.config;
  const DType dtype = experiment.dtype.value_or(config.dtype);
  const Sizes sizes(model, dtype);
  const ModelView view = sizes.store().view();

  DecoderLimits limits;
  limits.context =
      command.context ? command.context : std::min(kInspectedContext, Decoder::max_context(config));
  if (limits.context > Decoder::max_context(config))
    throw InputError("--context {}: {} has {} positions", limits.context, model.name,
                     Decoder::max_context(config));
  const std::uint64_t context = Decoder::device_bytes(config, dtype, limits);
  const Footprint footprint = footprint_of(view, [](const UnitInfo&) { return Transfer{}; });
  const std::uint64_t base = context + footprint.head_bytes;
  const auto layers = static_cast<std::uint32_t>(view.layers);

  Json budgets = Json::array();
  for (std::uint32_t n = 1;; n = std::min(n * 2, layers)) {
    const std::uint64_t slots = footprint.bytes_of(footprint.slots_for(n));
    budgets.push_back(
        {{"gpu_layer_budget", n}, {"slot_bytes", slots}, {"device_bytes", base + slots}});
    if (n == layers) break;
  }
  Json memory = Json::array();
  for (std::uint64_t gib : kMemoryGib) {
    std::uint32_t fitting = 0;
    while (fitting < layers &&
           base + footprint.bytes_of(footprint.slots_for(fitting + 1)) <= gib << 30)
      ++fitting;
    memory.push_back({{"memory_bytes", gib << 30}, {"gpu_layer_budget", fitting}});
  }
  return {{"model", model.name},
          {"architecture", name_of(config.architecture)},
          {"dtype", name_of(dtype)},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"vocab", config.vocab},
          {"tied_embeddings", config.tie_embeddings},
          {"units", units_of(view)},
          {"pinned_bytes", sizes.store().pinned_bytes()},
          {"context", limits.context},
          {"context_bytes", context},
          {"head_bytes", footprint.head_bytes},
          {"budgets", std::move(budgets)},
          {"fits", std::move(memory)}};
}

std::uint64_t bytes(const Json& object, const char* key) {
  return object[key].get<std::uint64_t>();
}

void print_inspected(const Json& report) {
  fmt::print("{}: {}, {} layers, dtype {}{}\n", report["model"].get<std::string>(),
             report["architecture"].get<std::string>(), report["layers"].get<int>(),
             report["dtype"].get<std::string>(),
             report["tied_embeddings"] == true ? ", embedding and head are one" : "");
  fmt::print("\n{:<12} {:>6} {:>14} {:>14}\n", "unit", "count", "largest", "total");
  for (const Json& unit : report["units"])
    fmt::print("{:<12} {:>6} {:>14} {:>14}\n", unit["kind"].get<std::string>(),
               unit["count"].get<std::uint64_t>(), format_bytes(bytes(unit, "largest_bytes")),
               format_bytes(bytes(unit, "total_bytes")));
  fmt::print("host memory, pinned: {}\n", format_bytes(bytes(report, "pinned_bytes")));
  fmt::print("\non the device whatever the budget: head {}, context of {} positions {}\n",
             format_bytes(bytes(report, "head_bytes")), report["context"].get<std::uint32_t>(),
             format_bytes(bytes(report, "context_bytes")));
  fmt::print("\n{:>16} {:>14} {:>14}\n", "gpu_layer_budget", "slots", "device memory");
  for (const Json& budget : report["budgets"])
    fmt::print("{:>16} {:>14} {:>14}\n", budget["gpu_layer_budget"].get<std::uint32_t>(),
               format_bytes(bytes(budget, "slot_bytes")),
               format_bytes(bytes(budget, "device_bytes")));
  fmt::print("\n{:>16} {:>30}\n", "device memory", "largest gpu_layer_budget");
  for (const Json& memory : report["fits"]) {
    const auto layers = memory["gpu_layer_budget"].get<std::uint32_t>();
    fmt::print("{:>16} {:>30}\n", format_bytes(bytes(memory, "memory_bytes")),
               layers == 0                                       ? "nothing fits"
               : layers == report["layers"].get<std::uint32_t>() ? fmt::format("{} (all)", layers)
                                                                 : fmt::format("{}", layers));
  }
}

void execute(const InspectCommand& command) {
  const Json report = report_of(command);
  if (command.json)
    fmt::print("{}\n", to_line(report));
  else
    print_inspected(report);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("inspect", "a model's units and sizes, and what fits in which budget");
  auto options = std::make_shared<InspectCommand>();
  command
      .add_option(
          "model", options->model,
          "a Hugging Face directory, or synthetic:NAME[:SEED] for a shape of configs/models")
      ->type_name("MODEL")
      ->required();
  command.add_option("--dtype", options->dtype, "auto, f32, bf16 or f16");
  command.add_option("--context", options->context, "positions to leave room for")
      ->check(CLI::Range(1u, std::numeric_limits<std::uint32_t>::max()));
  command.add_flag("--json", options->json, "JSON in place of tables");
  command.callback([options] { execute(*options); });
}

}  // namespace sluice
