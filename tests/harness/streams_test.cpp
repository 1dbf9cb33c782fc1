// Standard output and error that are full or closed: no answer is lost in silence, and messages end
// neither the run nor up in its files.
#include <string>
#include <vector>

#include "harness/results_file.hpp"
#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

using test::run_sluice_into;
using test::ScratchDir;

const std::vector<std::string> kGenerate{"generate",
                                         "--model",
                                         "synthetic:tiny-dense",
                                         "--prompt-ids",
                                         "1,2",
                                         "--policy",
                                         "resident",
                                         "--max-new-tokens",
                                         "3"};
constexpr const char* kFull = "/dev/full";

std::vector<std::string> with(std::vector<std::string> arguments, const std::string& more) {
  arguments.push_back(more);
  return arguments;
}

std::vector<std::string> sweep_to(const ScratchDir& dir) {
  const std::string yaml = dir.write("x.yaml",
                                     "model: {synthetic: tiny-dense}\n"
                                     "generation: {prompts: [{ids: [1]}], max_new_tokens: 2}\n"
                                     "measure: {warmup: 0, repeats: 1}\n"
                                     "sweep: {budget.gpu_layer_budget: [1, 2, 3]}\n");
  return {"sweep", yaml, "--out", dir.path() / "out"};
}

}  // namespace

TEST_CASE("an answer that cannot be written is a failure") {
  const ScratchDir dir;
  const std::string err = dir.path() / "err";
  CHECK(run_sluice_into(kGenerate, kFull, err) == 1);
  CHECK(run_sluice_into(with(kGenerate, "--json"), kFull, err) == 1);
  CHECK(run_sluice_into(sweep_to(dir), kFull, err) == 1);
  CHECK(ResultsFile(dir.path() / "out", false).records().size() ==
        3);  // they are safe all the same
}

TEST_CASE("messages that cannot be written change nothing") {
  const ScratchDir dir;
  const std::string out = dir.path() / "answer";
  for (const char* err : {kFull, ""}) {
    CHECK(run_sluice_into(kGenerate, out, err) == 0);
    CHECK_FALSE(test::bytes_of(out).empty());
    CHECK(run_sluice_into({"generate", "--model", "/nowhere", "--prompt", "x"}, out, err) == 2);
  }
}

TEST_CASE("closed streams leave no trace in the results") {
  const ScratchDir dir;
  CHECK(run_sluice_into(sweep_to(dir), "", "") == 0);
  CHECK(ResultsFile(dir.path() / "out", false).records().size() == 3);
}

}  // namespace sluice
