#include "harness/cell.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/weights/hash.hpp"
#include "harness/bounds.hpp"
#include "harness/build_info.hpp"
#include "harness/figures.hpp"
#include "harness/session.hpp"
#include "harness/stop_text.hpp"
#include "harness/value.hpp"
#include "harness/verdict.hpp"

namespace sluice {
namespace {

using Tokens = std::vector<std::vector<std::int32_t>>;

// Ends each request at a stop text.
class StopWatch {
 public:
  StopWatch(const Model& model, const std::vector<std::string>& stops, std::size_t requests) {
    if (stops.empty()) return;
    for (std::size_t i = 0; i < requests; ++i) {
      decoders_.emplace_back(model.text());
      stops_.emplace_back(stops);
    }
  }
  // False: the request has reached one.
  bool take(std::size_t request, std::int32_t token) {
    if (stops_.empty()) return true;
    stops_[request].push(decoders_[request].push(token));
    return !stops_[request].stopped();
  }

 private:
  std::vector<StreamDecoder> decoders_;
  std::vector<StopText> stops_;
};

// Of a run's time: how long the compute stream waited for weights, and, on a simulated device, how
// long each resource worked.
struct Spent {
  std::uint64_t stall_ns = 0;
  BusyTimes busy;
};

// Divides that between prefill and decoding: what was spent by a batch's first token is prefill's.
class SpentMeter {
 public:
  SpentMeter(Session& session, std::uint32_t batch)
      : session_(session), batch_(batch), seen_(now()) {}
  void token(std::size_t request) {
    const std::size_t group = request / batch_;
    take(group == group_ ? decode : prefill);
    group_ = group;
  }
  void end() { take(decode); }

  Spent prefill, decode;

 private:
  Spent now() { return {session_.stall_ns(), session_.busy()}; }
  void take(Spent& sum) {
    const Spent spent = now();
    sum.stall_ns += spent.stall_ns - seen_.stall_ns;
    sum.busy += spent.busy - seen_.busy;
    seen_ = spent;
  }

  Session& session_;
  std::uint32_t batch_;
  std::size_t group_ = std::numeric_limits<std::size_t>::max();
  Spent seen_;
};

void put_bound(Json& figures, const std::string& phase, const BusyTimes& busy,
               std::uint64_t elapsed_ns) {
  if (elapsed_ns == 0) return;
  const Bound bound = bound_of(busy, elapsed_ns);
  figures[phase + "_bound"] = bound.by;
  figures[phase + "_at_best"] = bound.at_best;
  figures[phase + "_busy_percent"] = {{"link", bound.link_percent},
                                      {"compute", bound.compute_percent},
                                      {"host", bound.host_percent}};
}

std::uint64_t elapsed_ns(std::chrono::steady_clock::time_point since) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - since)
          .count());
}

class CellRun {
 public:
  CellRun(const PreparedCell& cell, ModelCache& models, const CellProgress& progress)
      : cell_(cell),
        models_(models),
        executes_(cell.experiment.device.kind != DeviceKind::sim),
        session_(cell, models),
        progress_(progress) {
    const Experiment& experiment = cell.experiment;
    total_ = static_cast<std::uint64_t>(cell.prompts.size()) *
             (experiment.warmup + experiment.repeats) * experiment.generation.max_new_tokens;
  }

  void run(CellResult& result, LinkRates& links) {
    const Experiment& experiment = cell_.experiment;
    const double link = link_gbps(links);
    for (std::uint32_t i = 0; i < experiment.warmup; ++i) {
      session_.begin_section(fmt::format("warm-up {}", i + 1));
      once(result);
    }
    std::vector<RepeatFigures> repeats;
    for (std::uint32_t i = 0; i < experiment.repeats; ++i) {
      session_.begin_section(fmt::format("run {}", i + 1));
      repeats.push_back(once(result));
    }
    session_.begin_section("checks");
    result.counters = session_.counters();
    if (cell_.playback) result.difference = cell_.playback->difference_at_end();
    if (!result.tokens.empty()) result.figures["tokens_hash"] = hash_tokens(result.tokens);
    session_.end_routing();
    session_.end_decisions(result.figures.value("tokens_hash", Json(nullptr)));
    for (const RepeatFigures& repeat : repeats)
      if (result.reasons.empty()) check_moved(repeat, result);
    result.figures.update(make_figures(repeats, link));
    result.figures["link_gbps"] = link > 0 ? Json(link) : Json(nullptr);
    check_finite(result);
    check_memory(result);
    check_order(result);
  }

  void describe(CellResult& result) {
    result.device = session_.device().info().name;
    result.weights = session_.weights();
    result.notes = session_.notes();
    result.figures["pinned_bytes"] = session_.pinned_bytes();
    result.figures["unpinned_bytes"] = session_.unpinned_bytes();
    result.figures["kept_bytes"] = session_.kept_bytes();
    const EngineShape* shape = session_.shape();
    if (!shape) return;
    for (UnitKind kind : kStreamedKinds) {
      result.shape["kept"][std::string(name_of(kind))] = shape->kept[kind];
      result.shape["rotating"][std::string(name_of(kind))] = shape->rotating[kind];
    }
    result.shape["gpu_layer_budget"] = shape->layers;
    result.shape["lanes"] = shape->lanes;
    result.shape["slot_bytes"] = shape->slot_bytes;
    result.shape["staging_bytes"] = shape->staging_bytes;
    result.shape["head_bytes"] = shape->head_bytes;
  }

 private:
  double link_gbps(LinkRates& links) {
    const DeviceSpec& device = cell_.experiment.device;
    if (device.link_gbps) return *device.link_gbps;
    if (device.machine) return device.machine->link_gbps();
    const auto known = links.find(device.kind);
    if (known != links.end()) return known->second;
    return links[device.kind] = measure_link_gbps(models_.host(device));
  }

  RepeatFigures once(CellResult& result) {
    const GenerationChoice& generation = cell_.experiment.generation;
    std::vector<GenerationRequest> requests(cell_.prompts.size());
    std::uint64_t tokenising_ns = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      requests[i].prompt = prompt_ids(generation.prompts[i], i, *cell_.model, generation);
      // The clock on the wall says nothing of a machine that is not here.
      if (executes_ && generation.prompts[i].contains("text")) tokenising_ns += elapsed_ns(start);
      requests[i].sampling = generation.sampling;
      requests[i].max_new_tokens = generation.max_new_tokens;
      requests[i].ignore_eos = generation.ignore_eos;
    }
    session_.begin_run();
    StopWatch stops(*cell_.model, generation.stop_texts, requests.size());
    SpentMeter spent(session_, cell_.batch);
    const PhaseBook before = session_.phases();
    const std::vector<GenerationResult> results = session_.generator().run(
        requests, cell_.batch, [&](std::size_t request, std::int32_t token) {
          spent.token(request);
          ++done_;
          if (progress_) progress_(done_, total_);
          return !executes_ || stops.take(request, token);
        });
    spent.end();

    const GenerationTimes& times = session_.generator().times();
    const PhaseBook book = session_.phases() - before;
    RepeatFigures figures;
    figures.requests = requests.size();
    figures.batches = (requests.size() + cell_.batch - 1) / cell_.batch;
    figures.prompt_tokens = times.prompt_tokens;
    figures.prefill_ns = times.prefill_ns;
    figures.decode_ns = times.decode_ns;
    figures.ttft_ns = tokenising_ns;
    Tokens tokens;
    for (const GenerationResult& one : results) {
      figures.tokens += one.tokens.size();
      figures.ttft_ns += one.first_token_ns;
      figures.sequence_ns += one.total_ns - one.first_token_ns;
      tokens.push_back(one.tokens);
    }
    figures.prefill_stall_ns = spent.prefill.stall_ns;
    figures.decode_stall_ns = spent.decode.stall_ns;
    figures.prefill = book.prefill;
    figures.decode = book.decode;
    figures.decode_passes = book.decode_passes;
    figures.decode_rows = book.decode_rows;

    if (!executes_) {
      put_bound(result.figures, "prefill", spent.prefill.busy, times.prefill_ns);
      put_bound(result.figures, "decode", spent.decode.busy, times.decode_ns);
      return figures;
    }
    if (!result.tokens.empty() && result.tokens != tokens && result.reasons.empty())
      result.reasons.emplace_back("tokens differ between two runs over the same prompts");
    result.tokens = std::move(tokens);
    return figures;
  }

  void check_moved(const RepeatFigures& repeat, CellResult& result) {
    const std::string problem =
        problem_with({session_.must_move(),
                      session_.least_bytes_per_pass() * (repeat.decode_passes + repeat.batches),
                      repeat.prefill.h2d_bytes + repeat.decode.h2d_bytes});
    if (!problem.empty()) result.reasons.push_back(problem);
  }

  // A value that is not finite at any position reaches the logits after the last one. Checked for the
  // longest sequence and for any that ends in one token over and over.
  void check_finite(CellResult& result) {
    if (!executes_) return;
    constexpr std::size_t kSame = 8;
    std::size_t longest = 0;
    const auto length = [&](std::size_t i) {
      return cell_.prompts[i].size() + result.tokens[i].size();
    };
    for (std::size_t i = 1; i < result.tokens.size(); ++i)
      if (length(i) > length(longest)) longest = i;
    for (std::size_t i = 0; i < result.tokens.size(); ++i) {
      const std::vector<std::int32_t>& tokens = result.tokens[i];
      const bool repeats = tokens.size() >= kSame &&
                           std::all_of(tokens.end() - kSame, tokens.end(),
                                       [&](std::int32_t token) { return token == tokens.back(); });
      if (i != longest && !repeats) continue;
      GenerationRequest request;
      request.prompt = cell_.prompts[i];
      if (!tokens.empty())
        request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end() - 1);
      request.max_new_tokens = 1;
      request.want_first_logits = true;
      const auto logits = session_.generator().run({&request, 1}, 1).front().first_logits;
      if (std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
        continue;
      result.reasons.push_back(fmt::format("logits of prompt {} are not finite", i + 1));
      return;
    }
  }

  void check_memory(CellResult& result) {
    const MemoryUse use = session_.device().memory_use();
    result.figures["peak_device_bytes"] = use.device_peak_bytes;
    if (use.process_peak_bytes == 0) return;
    result.figures["peak_process_bytes"] = use.process_peak_bytes;
    const std::uint64_t limit = session_.device().info().memory_limit;
    if (use.process_peak_bytes > limit)
      result.reasons.push_back(
          fmt::format("the process took {} of the device's memory at its most; the limit is {}",
                      format_bytes(use.process_peak_bytes), format_bytes(limit)));
  }

  void check_order(CellResult& result) {
    constexpr std::size_t kShown = 3;
    const std::vector<Race> races = session_.finish();
    for (std::size_t i = 0; i < std::min(races.size(), kShown); ++i)
      result.reasons.push_back(races[i].describe());
    if (races.size() > kShown)
      result.reasons.push_back(fmt::format("and {} more races", races.size() - kShown));
  }

  const PreparedCell& cell_;
  ModelCache& models_;
  const bool executes_;  // false: there is time but no result
  Session session_;
  const CellProgress& progress_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

CellResult run_cell(const PreparedCell& cell, ModelCache& models, LinkRates& links, bool rethrow,
                    const CellProgress& progress) {
  CellResult result;
  start_peak_memory();
  try {
    CellRun run(cell, models, progress);
    run.describe(result);
    run.run(result, links);
  } catch (const Error& error) {
    if (rethrow) throw;
    result.reasons.emplace_back(error.what());
  }
  if (cell.experiment.device.kind != DeviceKind::sim)
    result.figures["process_peak_rss_bytes"] = peak_memory_bytes();
  return result;
}

std::string hash_tokens(const Tokens& tokens) {
  std::uint64_t hash = 0;
  for (const std::vector<std::int32_t>& sequence : tokens)
    hash = hash_bytes(std::as_bytes(std::span(sequence)), hash + 1);
  return fmt::format("{:016x}", hash);
}

}  // namespace sluice
