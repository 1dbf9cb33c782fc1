#include "harness/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "harness/progress.hpp"
#include "harness/record.hpp"

namespace sluice {
namespace {

// Positions in `cells`, in the order in which they run.
std::vector<std::size_t> running_order(std::span<const PreparedCell> cells) {
  std::map<std::string, std::size_t> groups;  // by model and type, in order of appearance
  std::vector<std::pair<std::size_t, int>> ranks;
  for (const PreparedCell& cell : cells) {
    const std::string group = fmt::format("{} {} {}", cell.model->name, name_of(cell.dtype),
                                          name_of(cell.experiment.device.kind));
    const std::string& policy = cell.experiment.policy.name;
    ranks.emplace_back(groups.emplace(group, groups.size()).first->second, cell.is_resident() ? 0
                                                                           : policy == kNaivePolicy
                                                                               ? 1
                                                                               : 2);
  }
  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranks[a] < ranks[b]; });
  return order;
}

std::string label_of(const PreparedCell& cell) {
  return fmt::format("{}, budget {}", policy_label(cell.experiment.inputs),
                     budget_label(cell.experiment.inputs));
}

std::string outcome_of(const Json& record) {
  if (record["valid"] != true) return "not valid: " + record["reasons"][0].get<std::string>();
  const Json& rate = record["figures"]["decode_tokens_per_second"];
  return rate.is_number() ? fmt::format("{:.2f} tokens/s", rate.get<double>()) : "done";
}

}  // namespace

std::vector<Json> run_sweep(std::span<const PreparedCell> cells, ModelCache& models,
                            ResultsFile* results, SweepOptions options) {
  std::map<std::string, Json> finished;
  std::vector<Json> in_order;  // of this sweep's cells, as they ran
  if (results) {
    std::map<std::string, bool> ours;
    for (const PreparedCell& cell : cells) ours[cell.id] = true;
    for (const Json& record : results->records()) {
      const std::string id = record["id"].get<std::string>();
      if (!ours.contains(id) || !finished.emplace(id, record).second) continue;
      in_order.push_back(record);
    }
    if (results->was_torn()) say("the last line of the results was torn; its cell runs again");
    const std::size_t others = results->records().size() - in_order.size();
    if (others > 0)
      say(fmt::format("{}: {} records of other inputs are kept", results->path().string(), others));
  }

  LinkRates links;
  std::size_t number = 0;
  for (std::size_t i : running_order(cells)) {
    const PreparedCell& cell = cells[i];
    const std::string what =
        fmt::format("cell {} of {}: {}", ++number, cells.size(), label_of(cell));
    if (finished.contains(cell.id)) {
      say(what + ": finished before");
      continue;
    }
    Json record;
    {
      std::optional<Progress> progress;
      const CellResult result = run_cell(
          cell, models, links, options.rethrow, [&](std::uint64_t done, std::uint64_t total) {
            if (!progress)
              progress.emplace(what, static_cast<double>(total), [](double tokens) {
                return fmt::format("{:.{}f} tokens", tokens, tokens == std::floor(tokens) ? 0 : 1);
              });
            progress->update(static_cast<double>(done));
          });
      record = make_record(cell, result);
    }
    finish_record(record, in_order);
    if (results) results->append(record);
    say(what + ": " + outcome_of(record));
    in_order.push_back(record);
    finished[cell.id] = std::move(record);
  }

  std::vector<Json> records;
  for (const PreparedCell& cell : cells) records.push_back(finished.at(cell.id));
  return records;
}

}  // namespace sluice
