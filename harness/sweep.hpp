// Runs cells one after another, each finished one a line on disk at once.
#pragma once
#include <span>
#include <vector>

#include "harness/prepare.hpp"
#include "harness/results_file.hpp"

namespace sluice {

struct SweepOptions {
  bool rethrow = false;  // a cell that cannot run ends it all, in place of a record that says so
};

// Records in the order of `cells`. Those that `results` (null: keep none) has already are not run
// again. Cells of one model follow each other, `resident` and naive_sync first, since others are
// compared to them. Progress goes to standard error.
std::vector<Json> run_sweep(std::span<const PreparedCell> cells, ModelCache& models,
                            ResultsFile* results, SweepOptions options);

}  // namespace sluice
