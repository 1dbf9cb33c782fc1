// The operations of a layer of experts, compared with loops in double precision that round where the
// contract says.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "core/weights/encoding.hpp"
#include "tests/catch.hpp"
#include "tests/ops/expert_case.hpp"

namespace sluice::test {
namespace {

struct Routed {
  Ints ids, host_ids, done;
  Floats weights, host_weights;
};

Routed route(const Tensor& scores, std::uint32_t rows, std::uint32_t per_token, bool normalise,
             const Ints* given = nullptr) {
  const std::size_t pairs = std::size_t{rows} * per_token;
  Routed out{Ints(pairs), Ints(pairs), Ints(rows), Floats(pairs), Floats(pairs)};
  run(&IKernels::route, RouteArgs{.scores = scores.data(),
                                  .type = scores.type(),
                                  .rows = rows,
                                  .experts = static_cast<std::uint32_t>(scores.size() / rows),
                                  .per_token = per_token,
                                  .normalise = normalise,
                                  .given = given ? given->data() : nullptr,
                                  .ids = out.ids.data(),
                                  .weights = out.weights.data(),
                                  .host_ids = out.host_ids.data(),
                                  .host_weights = out.host_weights.data(),
                                  .done = reinterpret_cast<std::uint32_t*>(out.done.data()),
                                  .done_value = 71});
  CHECK(out.done == Ints(rows, 71));
  return out;
}

// The softmax of one row of scores.
std::vector<double> shares_of(const Tensor& scores, std::size_t row, std::size_t experts) {
  std::vector<double> out(experts);
  double sum = 0;
  for (std::size_t i = 0; i < experts; ++i) sum += out[i] = std::exp(scores.get(row * experts + i));
  for (double& share : out) share /= sum;
  return out;
}

// Ids in ascending order.
std::vector<std::int32_t> best_of(const std::vector<double>& shares, std::uint32_t count) {
  std::vector<std::int32_t> ids(shares.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](std::int32_t a, std::int32_t b) {
    return shares[static_cast<std::size_t>(a)] > shares[static_cast<std::size_t>(b)];
  });
  ids.resize(count);
  std::ranges::sort(ids);
  return ids;
}

// Checks one row's weights for the ids that it has.
void check_weights(const Routed& routed, const std::vector<double>& shares, std::size_t row,
                   std::uint32_t per_token, bool normalise, DType type) {
  double sum = 0;
  for (std::size_t k = 0; k < per_token; ++k)
    sum += shares[static_cast<std::size_t>(routed.ids[row * per_token + k])];
  for (std::size_t k = 0; k < per_token; ++k) {
    const std::size_t at = row * per_token + k;
    const double exact = shares[static_cast<std::size_t>(routed.ids[at])] / (normalise ? sum : 1);
    const double got = routed.weights[at];
    CHECK(got == round_to(type, got));
    CHECK(std::abs(got - exact) <= ulp(type, exact) / 2 + 2e-6 * exact);
  }
}

}  // namespace

TEST_CASE("route chooses the best of the softmax, ties to the lower id", "[experts]") {
  Seeded random(20260301);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const auto& [experts, per_token] :
           {std::pair{1u, 1u}, {5u, 2u}, {16u, 16u}, {60u, 4u}, {128u, 8u}, {512u, 32u}}) {
        for (const bool normalise : {false, true}) {
          INFO(target << " " << name_of(type) << " " << per_token << " of " << experts);
          constexpr std::uint32_t kRows = 7;
          // Of a few values, so that there are ties.
          Tensor scores(type, std::size_t{kRows} * experts);
          for (std::size_t i = 0; i < scores.size(); ++i)
            scores.set(i, 0.125 * random.between(0, 40) - 2);
          const Routed routed = route(scores, kRows, per_token, normalise);
          for (std::size_t row = 0; row < kRows; ++row) {
            const std::vector<double> shares = shares_of(scores, row, experts);
            const auto expected = best_of(shares, per_token);
            CHECK(std::equal(expected.begin(), expected.end(),
                             routed.ids.begin() + static_cast<std::ptrdiff_t>(row * per_token)));
            check_weights(routed, shares, row, per_token, normalise, type);
          }
          CHECK(routed.host_ids == routed.ids);
          CHECK(routed.host_weights == routed.weights);
        }
      }
    }
  });
}

TEST_CASE("route takes ids that are given and weighs them by the scores", "[experts]") {
  Seeded random(20260302);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    INFO(target);
    const Tensor scores = Tensor::random(DType::bf16, 3 * 20, random.rng, 2);
    const Ints given{0, 7, 19, 1, 2, 3, 4, 11, 12};
    const Routed routed = route(scores, 3, 3, true, &given);
    CHECK(routed.ids == given);
    for (std::size_t row = 0; row < 3; ++row)
      check_weights(routed, shares_of(scores, row, 20), row, 3, true, DType::bf16);
  });
}

TEST_CASE("route gives ids that exist whatever the scores are", "[experts]") {
  for_each_target([&](const std::string& target) {
    INFO(target);
    Tensor scores(DType::f32, 2 * 9);
    for (std::size_t i = 0; i < scores.size(); ++i) scores.set(i, i < 9 ? NAN : INFINITY);
    const Routed routed = route(scores, 2, 4, true);
    for (std::size_t row = 0; row < 2; ++row) {
      const std::set<std::int32_t> ids(
          routed.ids.begin() + static_cast<std::ptrdiff_t>(row * 4),
          routed.ids.begin() + static_cast<std::ptrdiff_t>(row * 4 + 4));
      CHECK(ids.size() == 4);
      CHECK(*ids.begin() >= 0);
      CHECK(*ids.rbegin() < 9);
    }
  });
}

namespace {

ExpertSet set_of(std::initializer_list<std::uint32_t> ids) {
  ExpertSet out;
  for (const std::uint32_t id : ids) out.insert(id);
  return out;
}

constexpr Encoding kEncoded[] = {Encoding::native, Encoding::int8, Encoding::int4};

bool same_pair(const Tensor& a, const Tensor& b, std::size_t pair, std::size_t hidden) {
  const std::size_t bytes = hidden * size_of(a.type());
  return std::memcmp(a.data() + pair * bytes, b.data() + pair * bytes, bytes) == 0;
}

}  // namespace

TEST_CASE("expert_pairs agrees with a double loop within its roundings", "[experts]") {
  Seeded random(20260303);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const Encoding encoding : kEncoded) {
        for (const auto& [hidden, inter] : {std::pair{64u, 32u}, {48u, 24u}, {136u, 40u}}) {
          INFO(target << " " << name_of(type) << " " << name_of(encoding) << " " << hidden);
          Experts experts(type, encoding, 6, 3, hidden, inter, random);
          const Ints ids{0, 4, 1, 2, 4, 5};
          const Tensor out = experts.run(ids, set_of({0, 1, 2, 3, 4, 5}));
          std::size_t wrong = 0;
          for (std::size_t pair = 0; pair < ids.size(); ++pair)
            wrong += experts.wrong(out, pair, pair / 2, static_cast<std::size_t>(ids[pair]));
          CHECK(wrong == 0);
        }
      }
    }
  });
}

TEST_CASE("expert_pairs leaves pairs of other experts alone and no company changes a pair",
          "[experts]") {
  Seeded random(20260304);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const Encoding encoding : kEncoded) {
        INFO(target << " " << name_of(type) << " " << name_of(encoding));
        Experts experts(type, encoding, 100, 4, 64, 48, random);
        const Ints ids{3, 65, 3, 99, 0, 65, 3, 65};
        const Tensor all = experts.run(ids, set_of({0, 3, 65, 99}));
        for (const std::uint32_t one : {0u, 3u, 65u, 99u}) {
          // What is not asked for need not be there.
          std::vector<const std::byte*> known(experts.table.begin(), experts.table.end());
          for (std::uint32_t e = 0; e < 100; ++e)
            if (e != one) experts.table[e] = nullptr;
          const Tensor alone = experts.run(ids, set_of({one}));
          std::copy(known.begin(), known.end(), experts.table.begin());
          Tensor untouched(type, alone.size());
          untouched.fill(std::byte{0x7f});
          for (std::size_t pair = 0; pair < ids.size(); ++pair) {
            const bool asked = ids[pair] == static_cast<std::int32_t>(one);
            CHECK(same_pair(alone, asked ? all : untouched, pair, experts.hidden));
          }
        }
      }
    }
  });
}

TEST_CASE("place_experts changes the entries that it names", "[experts]") {
  std::pmr::vector<const std::byte*> table(40, nullptr);
  const std::byte somewhere[16]{};
  PlaceExpertsArgs args{.table = table.data(), .count = PlaceExpertsArgs::kMost};
  for (std::uint32_t i = 0; i < args.count; ++i) {
    args.ids[i] = 39 - 2 * i;
    args.slabs[i] = somewhere + i;
  }
  run(&IKernels::place_experts, args);
  for (std::uint32_t e = 0; e < 40; ++e) {
    const bool named = e % 2 == 1 && e >= 9;
    CHECK(table[e] == (named ? somewhere + (39 - e) / 2 : nullptr));
  }
}

namespace {

double f32_then(DType type, double value) { return round_to(type, round_to(DType::f32, value)); }

// sum = sum + round(weight * y), in f32
double plus(DType type, double sum, double weight, double y) {
  return round_to(DType::f32, sum + f32_then(type, weight * y));
}

Floats weights_for(DType type, std::size_t count, Seeded& random) {
  const Tensor values = Tensor::random(type, count, random.rng);
  Floats out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(std::abs(values.get(i)));
  return out;
}

}  // namespace

TEST_CASE("combine sums in the order of the experts, rounds that and adds the residual last",
          "[experts]") {
  Seeded random(20260305);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const std::uint32_t hidden : {1u, 7u, 64u, 1000u}) {
        for (const std::uint32_t per_token : {1u, 3u, 8u}) {
          INFO(target << " " << name_of(type) << " " << hidden << " " << per_token);
          constexpr std::uint32_t kRows = 3;
          const Tensor y = Tensor::random(type, kRows * per_token * hidden, random.rng);
          const Tensor before = Tensor::random(type, kRows * hidden, random.rng);
          const Floats weights = weights_for(type, kRows * per_token, random);
          Tensor out = before;
          run(&IKernels::combine, CombineArgs{.pairs = y.data(),
                                              .weights = weights.data(),
                                              .residual = out.data(),
                                              .type = type,
                                              .rows = kRows,
                                              .per_token = per_token,
                                              .hidden = hidden});
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < out.size(); ++i) {
            double sum = 0;
            for (std::size_t k = 0; k < per_token; ++k) {
              const std::size_t pair = i / hidden * per_token + k;
              sum = plus(type, sum, weights[pair], y.get(pair * hidden + i % hidden));
            }
            wrong += out.get(i) != f32_then(type, before.get(i) + round_to(type, sum));
          }
          CHECK(wrong == 0);
        }
      }
    }
  });
}

TEST_CASE("rows that are gathered by expert and added up give what combine gives", "[experts]") {
  Seeded random(20260306);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const std::uint32_t hidden : {5u, 64u, 999u}) {
        INFO(target << " " << name_of(type) << " " << hidden);
        constexpr std::uint32_t kRows = 9, kPerToken = 3;
        const Tensor y = Tensor::random(type, kRows * kPerToken * hidden, random.rng);
        const Floats weights = weights_for(type, kRows * kPerToken, random);
        Floats sums(kRows * hidden, 7.0f);
        run(&IKernels::clear_sums, ClearSumsArgs{sums.data(), kRows, hidden});
        for (const float sum : sums) REQUIRE(sum == 0);
        // An expert for each rank, and one for the last rank of every other row.
        for (std::uint32_t turn = 0; turn < kPerToken + 1; ++turn) {
          Ints pairs;
          for (std::int32_t row = 0; row < static_cast<std::int32_t>(kRows); ++row) {
            const std::uint32_t rank = std::min(turn, kPerToken - 1);
            if (rank < kPerToken - 1 || (row % 2 == 0) == (turn == rank))
              pairs.push_back(row * static_cast<std::int32_t>(kPerToken) +
                              static_cast<std::int32_t>(rank));
          }
          const auto count = static_cast<std::uint32_t>(pairs.size());
          Tensor some(type, count * hidden);
          // Of y, a "row" of one pair each: rows of pairs / 1.
          run(&IKernels::gather_rows,
              GatherRowsArgs{y.data(), pairs.data(), some.data(), type, count, 1, hidden});
          run(&IKernels::add_rows, AddRowsArgs{some.data(), pairs.data(), weights.data(),
                                               sums.data(), type, count, kPerToken, hidden});
        }
        const Tensor before = Tensor::random(type, kRows * hidden, random.rng);
        Tensor combined = before, added = before;
        run(&IKernels::combine,
            CombineArgs{y.data(), weights.data(), combined.data(), type, kRows, kPerToken, hidden});
        run(&IKernels::add_sums, AddSumsArgs{sums.data(), added.data(), type, kRows, hidden});
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < added.size(); ++i) wrong += added.get(i) != combined.get(i);
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("gather_rows takes the rows of pairs", "[experts]") {
  Seeded random(20260307);
  CAPTURE(random.seed);
  for (const DType type : kTypes) {
    const Tensor x = Tensor::random(type, 5 * 33, random.rng);
    const Ints pairs{1, 4, 5, 19};
    Tensor out(type, 4 * 33);
    run(&IKernels::gather_rows, GatherRowsArgs{x.data(), pairs.data(), out.data(), type, 4, 4, 33});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto row = static_cast<std::size_t>(pairs[i / 33]) / 4;
      REQUIRE(out.get(i) == x.get(row * 33 + i % 33));
    }
  }
}

}  // namespace sluice::test
