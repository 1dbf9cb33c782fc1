#include "harness/commands/predict_routing.hpp"

#include <fmt/core.h>

#include <map>
#include <set>

#include "core/device/sim_device.hpp"
#include "core/engine/engine.hpp"
#include "core/error.hpp"
#include "core/plugin/plugin_file.hpp"
#include "harness/progress.hpp"
#include "harness/results_file.hpp"
#include "harness/table.hpp"
#include "models/routing_replay.hpp"

namespace sluice {
namespace {

// Nothing is measured, so its figures are of no account; whatever is asked for fits.
Machine machine_without_limits() {
  return {.name = "replay",
          .device_memory_bytes = 1ull << 50,
          .host_memory_bytes = 1ull << 50,
          .h2d = {{{1, 1.0}}},
          .d2h = {{{1, 1.0}}},
          .memory_gbps = 1,
          .matrix_tflops = 1,
          .host_read_gbps = 1};
}

// A model of which nothing is known but its experts.
class NamelessModel final : public ITensorSource {
 public:
  static ModelPlan plan(const RoutingShape& shape) {
    ModelPlan plan;
    plan.layers = shape.layers;
    plan.experts_per_layer = shape.experts;
    plan.experts_per_token = shape.per_token;
    const auto add = [&](UnitKind kind, std::int32_t layer, std::int32_t expert,
                         std::uint64_t rows) {
      UnitSpec unit;
      unit.kind = kind;
      unit.layer = layer;
      unit.expert = expert;
      unit.tensors.push_back({.name = "weights", .shape = {rows, kWidth}, .is_matrix = true});
      plan.units.push_back(std::move(unit));
    };
    const std::uint64_t rows = std::max<std::uint64_t>(1, shape.expert_bytes / (2 * kWidth));
    add(UnitKind::embedding, 0, -1, 1);
    for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
      add(UnitKind::attention, layer, -1, 1);
      for (std::int32_t expert = 0; expert < shape.experts; ++expert)
        add(UnitKind::expert, layer, expert, rows);
    }
    add(UnitKind::head, shape.layers, -1, 1);
    return plan;
  }

  DType stored_type(const TensorSpec&) const override { return DType::bf16; }
  bool has(const std::string&) const override { return true; }
  void read(const TensorSpec&, std::uint64_t, std::uint64_t, std::byte*) const override {}
  std::string describe() const override { return "the model of the routing"; }

 private:
  static constexpr std::uint64_t kWidth = 128;
};

// The model's units as addresses, in every encoding that they can have.
std::unique_ptr<WeightStore> make_store(IDevice& device, const ModelPlan& plan,
                                        const ITensorSource& source, DType dtype) {
  const ModelLayout layout(plan, source, dtype);
  WeightStore::Options options{.dtype = dtype, .threads = 1, .progress = {}};
  for (const UnitInfo& unit : layout.units()) {
    EncodingSet all = Encoding::native;
    if (unit.kind != UnitKind::embedding && unit.kind != UnitKind::head)
      for (const Encoding encoding : {Encoding::int8, Encoding::int4})
        if (unit.size(encoding) != 0) all.add(encoding);
    options.encodings.push_back(all);
  }
  return std::make_unique<WeightStore>(device, plan, source, options);
}

struct Replayed {
  std::string policy, budget;
  std::uint32_t slots = 0;   // of experts
  std::uint64_t passes = 0;  // of decoding
  Counters prefill, decode;
  BestHits best;
  std::vector<std::string> notes;
};

void add(Counters& sum, const Counters& more) {
  sum.hits += more.hits;
  sum.misses += more.misses;
  sum.wasted += more.wasted;
  sum.refused += more.refused;
  sum.loads += more.loads;
  sum.h2d_bytes += more.h2d_bytes;
}

class Replayer {
 public:
  explicit Replayer(const Routing& routing)
      : routing_(routing), device_(make_sim_device(machine_without_limits())) {}

  Replayed run(const Settings& settings, const std::string& file, PluginCache& plugins) {
    const PolicyChoice choice = policy_choice(settings);
    const BudgetSpec budget = budget_spec(settings);
    if (std::holds_alternative<AutoBudget>(budget))
      throw InputError(
          "a replay of routing needs a budget: --expert-slots, or budget in an experiment");
    const std::shared_ptr<const Plugin> plugin = plugins.load(choice.name);
    const PolicyPtr policy = make_policy(plugin, choice.params);
    const WeightStore& store = store_of(settings, file);

    const StreamId compute = device_->make_stream(Resource::compute, "compute");
    Engine engine(*device_, compute, store, *policy, choice.name, budget);
    const EngineShape& shape = engine.shape();
    Replayed out;
    out.policy = policy_label(settings.to_json());
    out.budget = budget_label(settings.to_json());
    out.slots = shape.kept[UnitKind::expert] + shape.rotating[UnitKind::expert];
    out.notes = shape.notes;
    RoutingReplay replay(store.view(), routing_.shape);
    for (std::size_t i = 0; i < routing_.passes.size(); ++i) {
      const RoutedPass& pass = routing_.passes[i];
      const bool prefill = pass.phase == Phase::prefill;
      add(prefill ? out.prefill : out.decode,
          replay.pass(engine, pass, i + 1 == routing_.passes.size()));
      if (!prefill) ++out.passes;
    }
    device_->sync(device_->record(compute));
    if (replay.has_guessed())
      out.notes.emplace_back(
          "its guesses at the next layer are the recorded choices, so that this is the most that "
          "guessing can give");
    out.best = best_possible(replay.needed(), out.slots);
    return out;
  }

 private:
  const WeightStore& store_of(const Settings& settings, const std::string& file) {
    const bool known = settings.find("model.path") || settings.find("model.synthetic");
    std::unique_ptr<WeightStore>& store =
        stores_[known ? name_of(model_location(settings, file)) : std::string()];
    if (store) return *store;
    if (known) {
      const ModelSource& source = models_.open(model_location(settings, file)).source;
      store = make_store(*device_, source.plan, *source.tensors, source.config.dtype);
    } else {
      store =
          make_store(*device_, NamelessModel::plan(routing_.shape), NamelessModel(), DType::bf16);
    }
    return *store;
  }

  const Routing& routing_;
  std::unique_ptr<SimDevice> device_;
  ModelCache models_;
  std::map<std::string, std::unique_ptr<WeightStore>> stores_;
};

double rate(std::uint64_t hits, const Counters& of) {
  const std::uint64_t needs = of.hits + of.misses;
  return needs == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(needs);
}

Json to_json(const Counters& of, std::uint64_t best) {
  return {{"hits", of.hits},
          {"misses", of.misses},
          {"hit_rate", rate(of.hits, of)},
          {"best_hits", best},
          {"best_hit_rate", rate(best, of)},
          {"loads", of.loads},
          {"h2d_bytes", of.h2d_bytes},
          {"wasted", of.wasted},
          {"refused", of.refused}};
}

Json to_json(const Replayed& one) {
  return {{"policy", one.policy},
          {"budget", one.budget},
          {"expert_slots", one.slots},
          {"decode_passes", one.passes},
          {"decode", to_json(one.decode, one.best.decode)},
          {"prefill", to_json(one.prefill, one.best.prefill)},
          {"notes", one.notes}};
}

std::string table_of(const std::vector<Replayed>& all) {
  std::vector<TableRow> rows{
      {"policy", "slots", "hits", "hit rate", "best possible", "loads", "GB", "wasted", "refused"}};
  for (const Replayed& one : all) {
    const Counters& of = one.decode;
    rows.push_back({one.policy, fmt::format("{}", one.slots), fmt::format("{}", of.hits),
                    fmt::format("{:.1f}%", 100 * rate(of.hits, of)),
                    fmt::format("{:.1f}%", 100 * rate(one.best.decode, of)),
                    fmt::format("{}", of.loads),
                    fmt::format("{:.2f}", static_cast<double>(of.h2d_bytes) / 1e9),
                    fmt::format("{}", of.wasted), fmt::format("{}", of.refused)});
  }
  return format_rows(rows);
}

// A list on the command line is an axis, as one under `sweep` is.
Override with_list(Override override_) {
  const bool may_list = override_.path == "policy" || override_.path == "budget.expert_slots";
  if (!may_list || override_.value.kind != YamlNode::Kind::scalar ||
      override_.value.text.find(',') == std::string::npos)
    return override_;
  return parse_override(fmt::format("sweep.{}=[{}]", override_.path, override_.value.text),
                        override_.path == "policy" ? "--policy" : "--expert-slots");
}

}  // namespace

void predict_routing(const ExperimentOptions& options, const std::string& file,
                     const std::string& routing, bool json) {
  std::vector<Override> overrides;
  for (Override& one : options.overrides()) overrides.push_back(with_list(std::move(one)));
  if (file.empty() && overrides.empty())
    throw InputError(
        "--routing needs policies and budgets: --policy and --expert-slots, or EXPERIMENT");
  const Document document = read_document(file.empty() ? YamlNode{} : load_yaml(file), overrides);

  const Routing recorded = read_routing(routing);
  PluginCache plugins = options.plugins();
  Replayer replayer(recorded);
  std::vector<Replayed> all;
  std::set<std::pair<std::string, std::string>> known, noted;
  for (const Settings& settings : expand(document)) {
    if (is_reserved_policy(policy_choice(settings).name)) continue;  // they cache nothing
    if (!known.emplace(policy_label(settings.to_json()), budget_label(settings.to_json())).second)
      continue;
    all.push_back(replayer.run(settings, file, plugins));
    for (const std::string& note : all.back().notes)
      if (noted.emplace(all.back().policy, note).second)
        say(fmt::format("{}: {}", all.back().policy, note));
  }
  if (all.empty())
    throw InputError("no policy is left to replay: resident and mapped cache nothing");
  if (json) {
    Json records = Json::array();
    for (const Replayed& one : all) records.push_back(to_json(one));
    fmt::print("{}\n", to_line(records));
  } else {
    fmt::print("{}", table_of(all));
  }
}

}  // namespace sluice
