// The declarations of the operations of a layer of experts; see ops_test.cpp.
#include <array>

#include "tests/ops/declared_rig.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kExperts = 6, kPerToken = 2, kInter = 24;
constexpr std::uint32_t kPairs = kRows * kPerToken;
constexpr std::uint32_t kSlabValues = 3 * kInter * kHidden;

const std::vector<std::int32_t> kIds{0, 3, 1, 5, 0, 1, 3, 4, 2, 5};

float* floats(Rig& rig) {
  std::vector<float> weights(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) weights[i] = 0.25f * static_cast<float>(i % 7);
  return rig.ints(weights);
}

}  // namespace

TEST_CASE("route declares what it touches", "[ops]") {
  for (const bool for_host : {false, true}) {
    for (const bool given : {false, true}) {
      Rig rig;
      RouteArgs args{.scores = rig.values(kRows * kExperts),
                     .rows = kRows,
                     .experts = kExperts,
                     .per_token = kPerToken,
                     .normalise = true};
      if (given) args.given = rig.ints(kIds);
      args.ids = rig.ints(std::vector<std::int32_t>(kPairs, -1));
      args.weights = floats(rig);
      if (for_host) args.host_ids = rig.ints(std::vector<std::int32_t>(kPairs, -1));
      if (for_host) args.host_weights = floats(rig);
      if (for_host) args.done = rig.ints(std::vector<std::uint32_t>(kRows, 0));
      rig.ops().route(args);
      rig.check();
      const Recorded& op = rig.device().last();
      CHECK(size_of(op.reads) == kRows * kExperts * 2 + (given ? kPairs * 4 : 0));
      CHECK(size_of(op.writes) == (for_host ? 4 * kPairs + kRows : 2 * kPairs) * 4);
    }
  }
}

TEST_CASE("place_experts declares the entries that it changes", "[ops]") {
  Rig rig;
  ExpertTable table = rig.ints(std::vector<const std::byte*>(kExperts, nullptr));
  PlaceExpertsArgs args{.table = table, .count = 2};
  args.ids = {1, 4};
  args.slabs = {rig.values(1), rig.values(1)};
  rig.ops().place_experts(args);
  rig.check();
  CHECK(table[4] == args.slabs[1]);
  CHECK(rig.device().last().reads.empty());
  CHECK(size_of(rig.device().last().writes) == 16);
}

TEST_CASE("expert_pairs declares the slabs that it looks up and no others", "[ops]") {
  Rig rig;
  std::vector<const std::byte*> slabs;
  for (std::uint32_t e = 0; e < kExperts; ++e) slabs.push_back(rig.values(kSlabValues, 0.1));
  ExpertPairsArgs args{
      .x = rig.values(kRows * kHidden),
      .rows = kRows,
      .per_token = kPerToken,
      .ids = rig.ints(kIds),
      .table = rig.ints(slabs),
      .which = {},
      .shape = {.hidden = kHidden, .inter = kInter, .down = 2 * kInter * kHidden * 2},
      .inner = rig.values(kPairs * 2 * kInter),
      .out = rig.values(kPairs * kHidden)};
  args.which.insert(1);
  args.which.insert(3);
  const std::array read{range_of(slabs[1], kSlabValues * 2), range_of(slabs[3], kSlabValues * 2)};
  rig.ops().expert_pairs(args, {.experts = kExperts, .slabs = read, .pairs = 4, .chosen = 2});
  rig.check();
  const Recorded& op = rig.device().last();
  CHECK(size_of(op.reads) == kRows * kHidden * 2 + kPairs * 4 + kExperts * 8 + 2 * kSlabValues * 2);
  CHECK(size_of(op.writes) == kPairs * (2 * kInter + kHidden) * 2);
  CHECK(op.bytes == 2 * kSlabValues * 2 + 4 * (2 * kHidden + 4 * kInter) * 2);
  CHECK(op.flops == 4 * 2 * kSlabValues);
}

TEST_CASE("combine declares what it touches", "[ops]") {
  Rig rig;
  CombineArgs args;
  args.pairs = rig.values(kPairs * kHidden);
  args.weights = floats(rig);
  args.residual = rig.values(kRows * kHidden);
  args.rows = kRows;
  args.per_token = kPerToken;
  args.hidden = kHidden;
  rig.ops().combine(args);
  rig.check();
  const Recorded& op = rig.device().last();
  CHECK(size_of(op.reads) == (kPairs + kRows) * kHidden * 2 + kPairs * 4);
  CHECK(size_of(op.writes) == kRows * kHidden * 2);
}

TEST_CASE("routed_experts declares what its parts touch", "[ops]") {
  Rig rig;
  const std::uint64_t router_values = std::uint64_t{kHidden} * (kExperts + 1);
  std::byte* const router = rig.values(router_values);
  const Weights weights = slab_of(router, router_values * 2);
  std::vector<const std::byte*> slabs;
  std::vector<Range> read;
  for (std::uint32_t e = 0; e < kExperts; ++e) {
    slabs.push_back(rig.values(kSlabValues, 0.1));
    read.push_back(range_of(slabs[e], kSlabValues * 2));
  }
  RoutedExpertsArgs args;
  std::byte* const hidden = rig.values(kRows * kHidden);
  std::byte* const normed = rig.values(kRows * kHidden);
  std::byte* const scores = rig.values(kRows * kExperts);
  args.router = {.norm = {.x = hidden,
                          .weight = router,
                          .out = normed,
                          .rows = kRows,
                          .cols = kHidden,
                          .eps = 1e-6f},
                 .linear = {.x = normed,
                            .weight = router + kHidden * 2,
                            .out = scores,
                            .rows = kRows,
                            .n = kExperts,
                            .k = kHidden},
                 .keeps_normed = true};
  args.route = {.scores = scores,
                .rows = kRows,
                .experts = kExperts,
                .per_token = kPerToken,
                .ids = rig.ints(std::vector<std::int32_t>(kPairs, -1)),
                .weights = floats(rig)};
  args.table = rig.ints(slabs);
  args.shape = {.hidden = kHidden, .inter = kInter, .down = 2 * kInter * kHidden * 2};
  args.inner = rig.values(kPairs * 2 * kInter);
  args.results = rig.values(kPairs * kHidden);
  args.residual = hidden;
  rig.ops().routed_experts(args, weights,
                           {.experts = kExperts, .slabs = read, .pairs = 10, .chosen = 6});
  rig.check();
  const Recorded& op = rig.device().last();
  CHECK(op.flops == 4 * kRows * kHidden + 2 * kRows * kExperts * kHidden + 4 * kRows * kExperts +
                        10 * 2 * kSlabValues + 2 * kPairs * kHidden);
}

TEST_CASE("gathering, adding and clearing rows declare what they touch", "[ops]") {
  Rig rig;
  const std::int32_t* pairs = rig.ints<std::int32_t>({1, 2, 9});
  GatherRowsArgs gather;
  gather.x = rig.values(kRows * kHidden);
  gather.pairs = pairs;
  gather.out = rig.values(3 * kHidden);
  gather.count = 3;
  gather.per_token = kPerToken;
  gather.hidden = kHidden;
  rig.ops().gather_rows(gather, kRows);
  rig.check();
  CHECK(size_of(rig.device().last().writes) == 3 * kHidden * 2);

  AddRowsArgs add;
  add.y = gather.out;
  add.pairs = pairs;
  add.weights = floats(rig);
  // Of four bytes each.
  add.sums = reinterpret_cast<float*>(rig.values(2 * kRows * kHidden));
  add.count = 3;
  add.per_token = kPerToken;
  add.hidden = kHidden;
  rig.ops().add_rows(add, kRows);
  rig.check();
  CHECK(size_of(rig.device().last().reads) ==
        3 * kHidden * 2 + kRows * kHidden * 4 + (3 + kPairs) * 4);
  CHECK(size_of(rig.device().last().writes) == kRows * kHidden * 4);

  rig.ops().clear_sums({.sums = add.sums, .rows = kRows, .hidden = kHidden});
  rig.check();
  CHECK(rig.device().last().reads.empty());
  CHECK(size_of(rig.device().last().writes) == kRows * kHidden * 4);

  rig.ops().add_sums({.sums = add.sums,
                      .residual = rig.values(kRows * kHidden),
                      .rows = kRows,
                      .hidden = kHidden});
  rig.check();
  CHECK(size_of(rig.device().last().reads) == kRows * kHidden * (4 + 2));
  CHECK(size_of(rig.device().last().writes) == kRows * kHidden * 2);
}

}  // namespace sluice::test
