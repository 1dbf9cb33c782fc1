#include "harness/decision_file.hpp"

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"
#include "harness/results_file.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kLargestFile = 4ull << 30;

// What make_experiment made of the settings, and the prompts in place of their summary.
Json experiment_of(const PreparedCell& cell) {
  Json out = cell.experiment.inputs;
  out["generation"]["prompts"] = cell.experiment.generation.prompts;
  return out;
}

Json policy_of(const PreparedCell& cell) {
  Json out{{"name", cell.experiment.policy.name}};
  if (cell.plugin) {
    out["version"] = cell.plugin->descriptor().version;
    out["fingerprint"] = cell.plugin->fingerprint();
  }
  return out;
}

}  // namespace

DecisionFile::DecisionFile(const PreparedCell& cell)
    : path_(cell.instruments.decisions), out_(path_, std::ios::binary), log_(out_) {
  if (!out_) throw InputError("{}: the decisions cannot be written there", path_.string());
  out_ << to_line(
              {{"decisions", 1}, {"experiment", experiment_of(cell)}, {"policy", policy_of(cell)}})
       << '\n';
}

void DecisionFile::found_budget(const EngineShape& shape) {
  out_ << to_line(
              {{"budget", {{"bytes", shape.slot_bytes + shape.staging_bytes + shape.head_bytes}}}})
       << '\n';
}

void DecisionFile::end(const Counters& counters, const Json& tokens_hash) {
  log_.close();
  out_ << to_line({{"end", {{"counters", to_json(counters)}, {"tokens_hash", tokens_hash}}}})
       << '\n';
  out_.close();
  if (!out_) throw Error("{}: the decisions could not be written to their end", path_.string());
}

RecordedRun read_decision_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  const std::string text = read_file(path, kLargestFile);
  RecordedRun out;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::string place = fmt::format("{}:{}", file, ++number);
    if (number == 1) {
      const Json head = parse_json(line, file, number);
      const JsonNode checked(head, place);
      if (checked.at("decisions").integer(0, 1 << 20) != 1)
        throw InputError("{}: decisions of another kind than this build reads", place);
      out.experiment = checked.at("experiment").raw();
      out.policy = checked.at("policy").raw();
      JsonNode(out.policy, place, "policy").at("name").string();
    } else if (line.starts_with("{\"budget\"")) {
      const Json found = parse_json(line, file, number);
      out.experiment["budget"] = JsonNode(found, place).at("budget").raw();
    } else if (line.starts_with("{\"end\"")) {
      const Json last = parse_json(line, file, number);
      const JsonNode ended = JsonNode(last, place).at("end");
      out.counters = ended.at("counters").raw();
      const std::optional<JsonNode> hash = ended.find("tokens_hash");
      out.tokens_hash = hash ? hash->raw() : Json(nullptr);
    }
  }
  if (number == 0) throw InputError("{}: the file is empty", file);
  out.decisions = read_decisions(text, file);
  return out;
}

Json to_json(const Counters& counters) {
  return {{"hits", counters.hits},
          {"misses", counters.misses},
          {"wasted", counters.wasted},
          {"refused", counters.refused},
          {"loads", counters.loads},
          {"h2d_bytes", counters.h2d_bytes},
          {"kept_bytes", counters.kept_bytes}};
}

}  // namespace sluice
