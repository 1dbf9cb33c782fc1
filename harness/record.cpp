#include "harness/record.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "harness/build_info.hpp"
#include "harness/machine_file.hpp"

namespace sluice {
namespace {

constexpr std::array kFigures{"prefill_ms",
                              "ttft_ms",
                              "prefill_tokens_per_second",
                              "decode_tokens_per_second",
                              "decode_throughput_tokens_per_second",
                              "peak_device_bytes",
                              "peak_process_bytes",
                              "process_peak_rss_bytes",
                              "h2d_bytes",
                              "h2d_bytes_per_token",
                              "h2d_gbps",
                              "link_gbps",
                              "link_percent",
                              "stall_ms_per_token",
                              "prefill_stall_ms",
                              "transfer_to_compute",
                              "hits",
                              "misses",
                              "wasted",
                              "refused",
                              "loads",
                              "cancelled_bytes",
                              "kept_bytes",
                              "pinned_bytes",
                              "unpinned_bytes",
                              "speedup_over_naive",
                              "tokens_hash",
                              "prefill_bound",
                              "prefill_at_best",
                              "prefill_busy_percent",
                              "decode_bound",
                              "decode_at_best",
                              "decode_busy_percent"};

Json plugin_info(const PreparedCell& cell) {
  if (!cell.plugin) return nullptr;
  return {{"name", cell.plugin->name()},
          {"version", cell.plugin->descriptor().version},
          {"fingerprint", cell.plugin->fingerprint()},
          {"compiler", cell.plugin->descriptor().identity->signature.data()}};
}

// Whose choice the experts were.
Json routing_info(const PreparedCell& cell) {
  if (cell.model->source.config.experts.count == 0) return nullptr;
  if (const auto& synthetic = cell.experiment.routing)
    return fmt::format("synthetic: zipf {}, stickiness {}, recency {}, foresight {}, seed {}",
                       synthetic->zipf, synthetic->stickiness, synthetic->recency,
                       synthetic->foresight, synthetic->seed);
  return cell.experiment.device.kind == DeviceKind::sim ? "uniform" : "the router's";
}

// The first prompt and what came out, for a person to look at.
Json sample_of(const PreparedCell& cell, const CellResult& result) {
  if (result.tokens.empty() || !cell.model->tokenizer) return nullptr;
  const Tokenizer& tokenizer = *cell.model->tokenizer;
  return {{"prompt", tokenizer.decode(cell.prompts.front())},
          {"text", tokenizer.decode(result.tokens.front(), true)}};
}

// Inputs and model without what does not change the tokens of a cell whose kernels read the same
// weights.
Json token_inputs(const Json& record) {
  Json inputs = record.at("inputs");
  for (const char* key : {"policy", "budget", "measure", "name"}) inputs.erase(key);
  for (const char* key : {"link_gbps", "memory_limit", "pinned_limit"}) inputs["device"].erase(key);
  // Synthetic routing belongs to a place in the batch.
  if (!inputs["model"].contains("routing")) inputs["generation"].erase("batch");
  inputs["generation"].erase("context");
  inputs["model"]["content"] = record.at("context").at("model");
  inputs["model"]["weights"] = record.at("context").at("weights");
  return inputs;
}

Json baseline_inputs(const Json& record) {
  Json inputs = record.at("inputs");
  inputs.erase("policy");
  inputs["model"]["content"] = record.at("context").at("model");
  for (const char* slows : {"audited", "traced"}) inputs[slows] = record.value(slows, false);
  return inputs;
}

bool is_naive(const Json& record) { return record["inputs"]["policy"]["plugin"] == kNaivePolicy; }

}  // namespace

Json figure(const Json& figures, const char* name) { return figures.value(name, Json()); }

Json make_record(const PreparedCell& cell, const CellResult& result) {
  Json figures = result.figures;
  for (const char* name : kFigures)
    if (!figures.contains(name)) figures[name] = nullptr;
  const std::optional<Machine>& machine = cell.experiment.device.machine;
  return {{"id", cell.id},
          {"predicted", machine.has_value()},
          {"audited", cell.instruments.audit},
          {"traced", !cell.instruments.trace.empty()},
          {"valid", result.reasons.empty()},
          {"reasons", result.reasons},
          {"inputs", cell.experiment.inputs},
          {"context",
           {{"date", utc_now()},
            {"build", build_info()},
            {"machine", machine_info()},
            {"device", result.device},
            {"simulated", machine ? to_json(*machine) : Json(nullptr)},
            {"model", cell.model->source.tensors->describe()},
            {"dtype", name_of(cell.dtype)},
            {"positions", cell.context},
            {"plugin", plugin_info(cell)},
            {"weights", result.weights},
            {"routing", routing_info(cell)},
            {"notes", result.notes},
            {"shape", result.shape}}},
          {"figures", std::move(figures)},
          {"sample", sample_of(cell, result)}};
}

void finish_record(Json& record, std::span<const Json> earlier) {
  Json& figures = record["figures"];
  if (figures["tokens_hash"].is_string()) {
    const Json inputs = token_inputs(record);
    for (const Json& other : earlier) {
      if (other["valid"] != true || token_inputs(other) != inputs) continue;
      if (figure(other["figures"], "tokens_hash") != figures["tokens_hash"]) {
        record["valid"] = false;
        record["reasons"].push_back(
            fmt::format("the tokens are not those of {} with budget {}: hash {}, not {}",
                        policy_label(other["inputs"]), budget_label(other["inputs"]),
                        figures["tokens_hash"].get<std::string>(),
                        other["figures"]["tokens_hash"].get<std::string>()));
      }
      break;
    }
  }
  if (record["valid"] != true || !figures["decode_tokens_per_second"].is_number()) return;
  const double rate = figures["decode_tokens_per_second"].get<double>();
  if (is_naive(record)) {
    figures["speedup_over_naive"] = 1.0;
    return;
  }
  const Json inputs = baseline_inputs(record);
  for (const Json& other : earlier) {
    const Json naive_rate = figure(other["figures"], "decode_tokens_per_second");
    if (other["valid"] == true && is_naive(other) && naive_rate.is_number() &&
        naive_rate.get<double>() > 0 && baseline_inputs(other) == inputs) {
      figures["speedup_over_naive"] = rate / naive_rate.get<double>();
      return;
    }
  }
}

}  // namespace sluice
