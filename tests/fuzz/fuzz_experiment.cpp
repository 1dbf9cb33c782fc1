// An experiment's YAML, from its text to its typed cells: whatever the text is, it is an experiment
// or an InputError. Files are left out: nothing of the machine is opened.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "harness/experiment.hpp"
#include "harness/settings.hpp"

namespace {

constexpr std::size_t kCells = 64;

void read(const std::string& text) {
  using namespace sluice;
  const Document document = read_document(parse_yaml(text, "fuzz"), {});
  std::size_t cells = 1;
  for (const Axis& axis : document.axes) cells *= axis.values.size();
  if (cells > kCells) return;
  for (Settings& settings : expand(document)) {
    settings.set(*find_key("model.synthetic"), {"tiny-dense", {}});
    settings.set(*find_key("generation.prompts"), {Json::array({{{"random", 1}}}), {}});
    const Experiment experiment = make_experiment(settings, "fuzz");
    policy_label(experiment.inputs);
    budget_label(experiment.inputs);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    read(text);
  } catch (const sluice::InputError&) {
  }
  try {  // the same text on the command line
    sluice::read_document(sluice::YamlNode{}, std::vector{sluice::parse_override(text, "--set")});
  } catch (const sluice::InputError&) {
  }
  return 0;
}
