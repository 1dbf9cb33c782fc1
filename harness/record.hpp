// One line of results: a cell's inputs, where it ran, its figures, and whether they count.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "harness/cell.hpp"
#include "harness/prepare.hpp"

namespace sluice {

// Without what only other cells can say; see finish_record. Every figure has its key; those that
// were not reached are null. `predicted`: on a simulated device, whose figures are in the context.
Json make_record(const PreparedCell& cell, const CellResult& result);

// Adds what follows from the sweep's earlier records: `speedup_over_naive`, and whether the tokens
// are those of the first valid cell of the same model, weights, type and prompts.
void finish_record(Json& record, std::span<const Json> earlier);

// The policy to which others are compared.
inline constexpr std::string_view kNaivePolicy = "naive_sync";

// A figure of a record; null where it has none, as in one of an earlier version.
Json figure(const Json& figures, const char* name);

}  // namespace sluice
