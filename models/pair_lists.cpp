#include "models/pair_lists.hpp"

namespace sluice {

PairLists list_pairs(std::span<const std::int32_t> ids, std::uint32_t per_token,
                     std::uint32_t count, std::span<const std::uint32_t> block_ends) {
  std::vector<std::vector<std::int32_t>> of_expert(count);
  for (std::size_t pair = 0; pair < ids.size(); ++pair)
    of_expert[static_cast<std::size_t>(ids[pair])].push_back(static_cast<std::int32_t>(pair));

  PairLists out;
  out.pairs.reserve(ids.size());
  for (std::uint32_t expert = 0; expert < count; ++expert) {
    const std::vector<std::int32_t>& pairs = of_expert[expert];
    if (pairs.empty()) continue;
    out.experts.push_back(expert);
    auto next = pairs.begin();
    for (const std::uint32_t end : block_ends) {
      const PairRun run{.expert = expert, .first = static_cast<std::uint32_t>(out.pairs.size())};
      for (; next != pairs.end() && static_cast<std::uint32_t>(*next) / per_token < end; ++next)
        out.pairs.push_back(*next);
      const auto taken = static_cast<std::uint32_t>(out.pairs.size()) - run.first;
      if (taken != 0) out.runs.push_back({run.expert, run.first, taken});
    }
  }
  return out;
}

}  // namespace sluice
