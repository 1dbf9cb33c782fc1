// Options that several subcommands share, and what they say about an experiment.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/prepare.hpp"
#include "harness/settings.hpp"

namespace sluice {

// Of a text that an option names.
inline constexpr std::uint64_t kMostTextBytes = 1ull << 30;

// PATH, or synthetic:NAME[:SEED], as an experiment says it; `option` names it in errors.
std::vector<Override> model_overrides(const std::string& model, const std::string& option);

// A policy's parameters, each KEY=VALUE; `option` names them in errors.
std::vector<Override> param_overrides(const std::vector<std::string>& params,
                                      const std::string& option);

// --policy --param --gpu-layer-budget --expert-slots --device --machine --dtype --set --plugin-dir. Values
// are checked where a file's would be, so the messages are the same.
class ExperimentOptions {
 public:
  void add_to(CLI::App& command);
  // Options for single keys: `--max-new-tokens` for generation.max_new_tokens. Flags for those that
  // are true or false.
  void add_keys(CLI::App& command, const std::vector<std::string>& keys);
  // --model PATH, or --model synthetic:NAME[:SEED].
  void add_model(CLI::App& command);
  // --device --machine --set.
  void add_device(CLI::App& command);
  // --audit --trace --decisions.
  void add_instruments(CLI::App& command);

  // In the order in which they count.
  std::vector<Override> overrides() const;
  PluginCache plugins() const;
  const Instruments& instruments() const { return instruments_; }

 private:
  void add_key(CLI::App& command, const std::string& name, const std::string& key);

  std::vector<Override> given_;
  std::vector<std::string> sets_, params_, plugin_dirs_;
  std::string model_;
  Instruments instruments_;
};

}  // namespace sluice
