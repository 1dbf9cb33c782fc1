#include "harness/table.hpp"

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "harness/printable.hpp"
#include "harness/record.hpp"

namespace sluice {
namespace {

using Row = TableRow;

std::string number(const Json& value, int digits) {
  return value.is_number() ? fmt::format("{:.{}f}", value.get<double>(), digits) : "-";
}

std::string hit_rate(const Json& figures) {
  const Json hit = figure(figures, "hits"), miss = figure(figures, "misses");
  if (!hit.is_number() || !miss.is_number()) return "-";
  const double hits = hit.get<double>(), misses = miss.get<double>();
  return hits + misses > 0 ? fmt::format("{:.1f}%", 100 * hits / (hits + misses)) : "-";
}

std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "-" : value.dump();
}

// Inputs in which records differ, as JSON pointers; policy and budget have columns of their own.
std::vector<std::string> differing_inputs(std::span<const Json> records) {
  std::set<std::string> paths;
  std::vector<Json> flat;
  for (const Json& record : records) {
    flat.push_back(record.at("inputs").flatten());
    for (const auto& [path, value] : flat.back().items())
      if (!path.starts_with("/policy/") && !path.starts_with("/budget") &&
          path != "/generation/prompts/hash" && path != "/generation/prompts/count")
        paths.insert(path);
  }
  std::vector<std::string> differing;
  for (const std::string& path : paths) {
    const auto value = [&](const Json& inputs) {
      return inputs.contains(path) ? inputs[path] : Json(nullptr);
    };
    if (std::any_of(flat.begin(), flat.end(),
                    [&](const Json& inputs) { return value(inputs) != value(flat.front()); }))
      differing.push_back(path);
  }
  return differing;
}

bool is_predicted(const Json& record) { return record.value("predicted", false); }

}  // namespace

std::string format_rows(const std::vector<TableRow>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string format_table(std::span<const Json> records) {
  if (records.empty()) return "";
  const std::vector<std::string> differing = differing_inputs(records);
  Row head{"policy", "budget"};
  for (const std::string& path : differing) head.push_back(path.substr(path.rfind('/') + 1));
  for (const char* name : {"TTFT ms", "tok/s", "x naive", "stall ms/tok", "GB/s", "hits", "valid"})
    head.emplace_back(name);
  const bool predicted = std::any_of(records.begin(), records.end(), is_predicted);
  if (predicted) head.insert(head.end() - 1, {"bound by", "x at best"});
  std::vector<Row> rows{head};
  std::string reasons;
  for (const Json& record : records) {
    const Json& inputs = record.at("inputs");
    const Json& figures = record.at("figures");
    Row row{policy_label(inputs), budget_label(inputs)};
    const Json flat = inputs.flatten();
    for (const std::string& path : differing)
      row.push_back(flat.contains(path) ? plain(flat[path]) : "-");
    row.push_back(number(figure(figures, "ttft_ms"), 1));
    row.push_back(number(figure(figures, "decode_tokens_per_second"), 2));
    row.push_back(number(figure(figures, "speedup_over_naive"), 2));
    row.push_back(number(figure(figures, "stall_ms_per_token"), 1));
    row.push_back(number(figure(figures, "h2d_gbps"), 2));
    row.push_back(hit_rate(figures));
    if (predicted) {
      row.push_back(plain(figure(figures, "decode_bound")));
      row.push_back(number(figure(figures, "decode_at_best"), 2));
    }
    row.emplace_back(record.at("valid") == true ? "yes" : "NO");
    rows.push_back(std::move(row));
    for (const Json& reason : record.at("reasons"))
      reasons += fmt::format("not valid: {}, budget {}: {}\n", policy_label(inputs),
                             budget_label(inputs), printable(plain(reason)));
  }
  return format_rows(rows) + (reasons.empty() ? "" : "\n" + reasons);
}

}  // namespace sluice
