// The pairs of many rows, in the order in which a prefill takes them: expert by expert.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Pairs of one expert and one block of rows: PairLists::pairs [first, first + count).
struct PairRun {
  std::uint32_t expert = 0, first = 0, count = 0;
};

struct PairLists {
  std::vector<std::int32_t> pairs;     // row * per_token + rank; ascending in each run
  std::vector<PairRun> runs;           // none empty; by expert, then by block
  std::vector<std::uint32_t> experts;  // that were chosen at all, ascending
};

// `ids` is [rows, per_token], below `count`; `block_ends` are the rows behind each block, ascending
// up to `rows`.
PairLists list_pairs(std::span<const std::int32_t> ids, std::uint32_t per_token,
                     std::uint32_t count, std::span<const std::uint32_t> block_ends);

}  // namespace sluice
