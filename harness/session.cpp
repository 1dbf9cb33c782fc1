#include "harness/session.hpp"

#include <algorithm>

#include "core/engine/figures.hpp"
#include "core/engine/guarded_policy.hpp"
#include "core/error.hpp"
#include "harness/printable.hpp"
#include "harness/progress.hpp"
#include "harness/value.hpp"

namespace sluice {
namespace {

ModelLayout layout_of(const PreparedCell& cell) {
  const ModelSource& source = cell.model->source;
  return {source.plan, *source.tensors, cell.dtype};
}

PolicyPtr make_policy(const PreparedCell& cell) {
  if (cell.playback) return cell.playback;
  return cell.plugin ? make_policy(cell.plugin, cell.experiment.policy.params) : nullptr;
}

// Units of each kind that a pass reads at least: of the experts as many of each layer as a single token
// is routed to.
PerKind<std::uint32_t> needed_by_any_pass(const ModelView& view) {
  PerKind<std::uint32_t> needed;
  for (const UnitInfo& unit : view.units)
    needed[unit.kind] += unit.expert < view.experts_per_token;  // -1 where it is none
  return needed;
}

DecoderLimits limits_of(const PreparedCell& cell) {
  DecoderLimits limits;
  limits.context = cell.context;
  limits.sequences = cell.batch;
  limits.logit_rows = cell.logit_rows;
  return limits;
}

}  // namespace

Session::Session(const PreparedCell& cell, ModelCache& models, bool poison)
    : layout_(layout_of(cell)),
      policy_(make_policy(cell)),
      transfers_(transfers_of(cell, policy_.get(), layout_.view())),
      weights_(models.pack(cell.experiment, cell.dtype, stored_for(layout_.view(), transfers_))),
      hardware_(make_device(cell.experiment.device)),
      sim_(dynamic_cast<SimDevice*>(hardware_.get())),
      device_(instrumented(cell)),
      compute_(device_->make_stream(Resource::compute, "compute")) {
  try {
    decoder_ = std::make_unique<Decoder>(*device_, compute_, cell.model->source.config, *weights_,
                                         cell.dtype, limits_of(cell), routing_hooks(cell));
    make_provider(cell, poison);
  } catch (const MemoryLimitError& error) {
    explain_memory(cell, error.what());
  }
  meter_ = std::make_unique<PhaseMeter>(provider(), weights_->view().order.front());

  std::vector<std::int32_t> stops = cell.model->generation.stop_ids;
  const std::vector<std::int32_t>& more = cell.experiment.generation.stop_ids;
  stops.insert(stops.end(), more.begin(), more.end());
  generator_ = std::make_unique<Generator>(*device_, *decoder_, *meter_, stops);
  check_host_memory(cell);
}

ILayerProvider& Session::provider() const {
  if (engine_) return *engine_;
  if (mapped_) return *mapped_;
  return *resident_;
}

IDevice* Session::instrumented(const PreparedCell& cell) {
  IDevice* top = hardware_.get();
  if (!cell.instruments.trace.empty()) {
    std::vector<std::string> units;
    for (const UnitInfo& unit : weights_->view().units) units.push_back(unit_text(unit));
    trace_ = make_trace_device(*top, cell.instruments.trace, std::move(units));
    trace_->begin_section("setup");
    top = trace_.get();
  }
  if (cell.instruments.audit) {
    audit_ = make_audit_device(*top);
    top = audit_.get();
  }
  return top;
}

RoutingHooks Session::routing_hooks(const PreparedCell& cell) {
  RoutingHooks hooks = cell.instruments.routing;
  const ExpertConfig& experts = cell.model->source.config.experts;
  if (cell.experiment.routing) {
    routing_ = std::make_unique<SyntheticRouting>(cell.model->source.config.layers, experts.count,
                                                  *cell.experiment.routing);
    hooks.given = routing_.get();
  }
  if (!cell.instruments.routing_file.empty()) {
    std::uint64_t largest = 0;
    for (const UnitInfo& unit : layout_.units())
      if (unit.kind == UnitKind::expert) largest = std::max(largest, unit.size(Encoding::native));
    if (largest == 0)
      throw InputError("{}: {} has no experts, so nothing is routed", cell.experiment.name,
                       cell.model->name);
    routing_file_ = std::make_unique<RoutingFile>(
        cell.instruments.routing_file,
        RoutingShape{cell.model->source.config.layers, experts.count, experts.per_token, largest});
    hooks.sink = routing_file_.get();
  }
  return hooks;
}

void Session::end_routing() {
  if (routing_file_) routing_file_->finish();
}

void Session::begin_run() {
  if (routing_) routing_->begin_run();
}

std::vector<std::string> Session::notes() const {
  return engine_ ? engine_->shape().notes : std::vector<std::string>{};
}

void Session::begin_section(const std::string& name) {
  if (trace_) trace_->begin_section(name);
}

void Session::end_decisions(const nlohmann::json& tokens_hash) {
  if (decisions_) decisions_->end(engine_->counters(), tokens_hash);
}

std::vector<Race> Session::finish() {
  generator_.reset();
  meter_.reset();
  engine_.reset();
  resident_.reset();
  mapped_.reset();
  decoder_.reset();
  if (trace_) trace_->finish();
  return audit_ ? audit_->races() : std::vector<Race>{};
}

void Session::make_provider(const PreparedCell& cell, bool poison) {
  if (cell.is_resident()) {
    resident_ = std::make_unique<ResidentProvider>(
        *device_, compute_, *weights_, [&](const UnitInfo& unit) { return transfer(unit); });
    return;
  }
  if (cell.is_mapped()) {
    if (!device_->info().executes)
      throw InputError(
          "mapped lets kernels read the host's memory over the link, which a simulated device does "
          "not imitate");
    mapped_ = std::make_unique<MappedProvider>(*weights_);
    return;
  }
  BudgetSpec budget = cell.experiment.budget;
  if (auto* automatic = std::get_if<AutoBudget>(&budget))
    automatic->free_bytes = free_bytes(*device_);
  const PolicyChoice& choice = cell.experiment.policy;
  EngineOptions options;
  options.poison = poison;
  options.decisions = cell.instruments.listener;
  if (!cell.instruments.decisions.empty()) {
    decisions_ = std::make_unique<DecisionFile>(cell);
    options.decisions = &decisions_->sink();
  }
  engine_ = std::make_unique<Engine>(*device_, compute_, *weights_, *policy_, choice.name, budget,
                                     options);
  if (decisions_ && std::holds_alternative<AutoBudget>(budget))
    decisions_->found_budget(engine_->shape());
  for (const std::string& note : notes()) say(fmt::format("{}: {}", choice.name, printable(note)));
}

void Session::check_host_memory(const PreparedCell& cell) const {
  const std::optional<Machine>& machine = cell.experiment.device.machine;
  if (!machine || pinned_bytes() <= machine->host_memory_bytes) return;
  throw InputError(
      "{}: the weights and what else is pinned take {} of host memory; {} has {} (host_memory in "
      "the "
      "machine's file; a copy of it with more can be given by its path)",
      cell.experiment.name, format_bytes(pinned_bytes()), machine->name,
      format_bytes(machine->host_memory_bytes));
}

void Session::explain_memory(const PreparedCell& cell, const std::string& what) {
  const ModelView view = weights_->view();
  const std::uint64_t limit = device_->info().memory_limit;
  const MemoryUse use = device_->memory_use();
  const std::uint64_t context =
      (decoder_ ? use.device_bytes
                : Decoder::device_bytes(cell.model->source.config, cell.dtype, limits_of(cell))) +
      use.other_bytes;
  if (cell.is_mapped())
    throw InputError(
        "{}: the memory limit of {} is too small: a context of {} positions for {} at once takes "
        "{}; raise device.memory_limit to that, or shorten the context ({})",
        cell.experiment.name, format_bytes(limit), cell.context, limits_of(cell).sequences,
        format_bytes(context), what);
  const Footprint footprint =
      footprint_of(view, [&](const UnitInfo& unit) { return transfer(unit); });
  const std::uint64_t base = context + footprint.head_bytes + footprint.staging_bytes;
  const auto with_layers = [&](std::uint32_t layers) {
    return base + footprint.bytes_of(footprint.slots_for(layers));
  };
  const auto all = static_cast<std::uint32_t>(view.layers);
  std::uint32_t fitting = 0;
  while (fitting < all && with_layers(fitting + 1) <= limit) ++fitting;

  std::string advice =
      fitting > 0 ? fmt::format("a gpu_layer_budget of up to {} fits, or", fitting)
                  : fmt::format("one layer takes {} in all;", format_bytes(with_layers(1)));
  std::string wanted = "every unit resident";
  std::uint64_t needed = with_layers(all);
  if (const auto* layers = std::get_if<LayerBudget>(&cell.experiment.budget);
      layers && !cell.is_resident()) {
    wanted = fmt::format("a gpu_layer_budget of {}", layers->layers);
    needed = with_layers(layers->layers);
  } else if (!cell.is_resident()) {
    wanted = "the smallest budget";
    needed = with_layers(1);
  }
  throw InputError(
      "{}: the memory limit of {} is too small: a context of {} positions for {} at once takes {}, "
      "the head {}, and {} makes {}; {} raise device.memory_limit to {}, or shorten the context "
      "({})",
      cell.experiment.name, format_bytes(limit), cell.context, limits_of(cell).sequences,
      format_bytes(context), format_bytes(footprint.head_bytes), wanted, format_bytes(needed),
      advice, format_bytes(needed), what);
}

std::uint64_t Session::pinned_bytes() const {
  return weights_->pinned_bytes() + device_->memory_use().pinned_peak_bytes;
}

std::uint64_t Session::kept_bytes() const {
  return resident_ ? resident_->loaded_bytes() : counters().kept_bytes;
}

std::uint32_t Session::slots_of(UnitKind kind) const {
  if (!engine_) return 0;
  return engine_->shape().kept[kind] + engine_->shape().rotating[kind];
}

bool Session::must_move() const {
  if (resident_) return false;
  const PerKind<std::uint32_t> needed = needed_by_any_pass(weights_->view());
  return std::ranges::any_of(kStreamedKinds,
                             [&](UnitKind kind) { return needed[kind] > slots_of(kind); });
}

std::uint64_t Session::least_bytes_per_pass() const {
  if (resident_) return 0;
  const ModelView view = weights_->view();
  const PerKind<std::uint32_t> needed = needed_by_any_pass(view);
  std::uint64_t least = 0;
  for (UnitKind kind : {UnitKind::attention, UnitKind::mlp, UnitKind::expert, UnitKind::head}) {
    if (kind == UnitKind::head && engine_) continue;  // on the device for good
    std::vector<std::uint64_t> sizes;
    for (const UnitInfo& unit : view.units)
      if (unit.kind == kind) sizes.push_back(unit.size(transfer(unit).wire));
    std::sort(sizes.begin(), sizes.end());
    for (std::size_t i = 0; i + slots_of(kind) < needed[kind]; ++i) least += sizes[i];
  }
  return least;
}

double measure_link_gbps(IDevice& device) {
  constexpr std::uint64_t kLargest = 64ull << 20;
  constexpr int kCopies = 5;
  const std::uint64_t bytes = std::min(kLargest, free_bytes(device) / 2 / 256 * 256);
  if (bytes == 0) return 0;
  const Buffer from(device, Buffer::Where::pinned, bytes, "link probe");
  const Buffer to(device, Buffer::Where::device, bytes, "link probe");
  std::fill_n(from.data(), bytes, std::byte{1});
  const StreamId stream = device.make_stream(Resource::h2d, "link probe");
  double best = 0;
  for (int i = 0; i < kCopies; ++i) {
    const Range reads[] = {from.range()}, writes[] = {to.range()};
    const std::uint64_t start = device.now_ns();
    device.copy(stream,
                {.name = "link probe",
                 .on = Resource::h2d,
                 .bytes = bytes,
                 .reads = reads,
                 .writes = writes},
                to.data(), from.data(), bytes);
    device.sync(device.record(stream));
    const std::uint64_t ns = device.now_ns() - start;
    if (ns > 0) best = std::max(best, static_cast<double>(bytes) / static_cast<double>(ns));
  }
  return best;
}

}  // namespace sluice
