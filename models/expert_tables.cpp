#include "models/expert_tables.hpp"

namespace sluice {

ExpertTables::ExpertTables(Ops& ops, const std::byte** slabs, std::uint32_t layers,
                           std::uint32_t experts)
    : ops_(ops), slabs_(slabs), experts_(experts), known_(std::size_t{layers} * experts, nullptr) {}

void ExpertTables::place(std::int32_t layer, std::span<const PlacedExpert> experts) {
  PlaceExpertsArgs args{.table = of(layer)};
  const auto put = [&] {
    if (args.count != 0) ops_.place_experts(args);
    args.count = 0;
  };
  for (const auto& [id, weights] : experts) {
    const std::byte*& known = known_[first(layer) + id];
    if (known == weights.data) continue;
    known = weights.data;
    args.ids[args.count] = id;
    args.slabs[args.count] = weights.data;
    if (++args.count == PlaceExpertsArgs::kMost) put();
  }
  put();
}

}  // namespace sluice
