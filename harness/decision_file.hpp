// A file of decisions: a line that says of which experiment, the decisions of
// core/engine/decision_log.hpp, and a line with what they came to.
//
//   {"decisions":1,"experiment":{..},"policy":{..}}    as an experiment's YAML, prompts written out
//   {"budget":{"bytes":6442450944}}                    what `auto` came to, where it was given
//   {"end":{"counters":{..},"tokens_hash":".."}}       null: nothing was executed
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/engine/decision_log.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/playback_policy.hpp"
#include "harness/prepare.hpp"

namespace sluice {

class DecisionFile {
 public:
  // Writes to the cell's Instruments::decisions. Throws InputError when it cannot be opened.
  explicit DecisionFile(const PreparedCell& cell);

  DecisionSink& sink() { return log_; }
  void found_budget(const EngineShape& shape);
  // Throws Error when the disk has refused.
  void end(const Counters& counters, const nlohmann::json& tokens_hash);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
  DecisionLog log_;
};

// Such a file, read back.
struct RecordedRun {
  nlohmann::json experiment;  // with the budget that was found
  nlohmann::json policy;      // name, version and fingerprint
  Decisions decisions;
  nlohmann::json counters;     // null: the run was not finished
  nlohmann::json tokens_hash;  // null: none
};

// Throws InputError, the file and the line named.
RecordedRun read_decision_file(const std::filesystem::path& path);

// As in the file. `cancelled_bytes` is left out: how far a guess got is the link's.
nlohmann::json to_json(const Counters& counters);

}  // namespace sluice
