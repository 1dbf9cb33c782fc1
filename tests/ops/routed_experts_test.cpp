// A layer of experts in one operation, compared with its parts one after another.
#include <cmath>
#include <utility>

#include "tests/catch.hpp"
#include "tests/ops/expert_case.hpp"

namespace sluice::test {
namespace {

// A layer of experts behind its attention, with memory of its own for all that is written.
struct Layer {
  Layer(const Experts& experts, const Tensor& router, const Tensor& norm, const Ints* given,
        std::uint32_t per_token)
      : count(static_cast<std::uint32_t>(experts.table.size())),
        residual(experts.x),
        normed(experts.type, experts.x.size()),
        scores(experts.type, std::size_t{experts.rows} * count),
        inner(experts.type, std::size_t{experts.rows} * per_token * 2 * experts.inter),
        results(experts.type, std::size_t{experts.rows} * per_token * experts.hidden),
        ids(std::size_t{experts.rows} * per_token),
        weights(ids.size()) {
    const std::uint32_t rows = experts.rows, hidden = experts.hidden;
    const DType type = experts.type;
    args.router = {.norm = {.x = residual.data(),
                            .weight = norm.data(),
                            .weight_type = type,
                            .out = normed.data(),
                            .type = type,
                            .rows = rows,
                            .cols = hidden,
                            .eps = 1e-6f},
                   .linear = {.x = normed.data(),
                              .weight = router.data(),
                              .weight_type = type,
                              .out = scores.data(),
                              .type = type,
                              .rows = rows,
                              .n = count,
                              .k = hidden},
                   .keeps_normed = true};
    args.route = {.scores = scores.data(),
                  .type = type,
                  .rows = rows,
                  .experts = count,
                  .per_token = per_token,
                  .normalise = true,
                  .given = given ? given->data() : nullptr,
                  .ids = ids.data(),
                  .weights = weights.data()};
    args.table = const_cast<ExpertTable>(experts.table.data());
    args.shape = experts.shape;
    args.inner = inner.data();
    args.results = results.data();
    args.residual = residual.data();
  }

  std::uint32_t count;
  Tensor residual, normed, scores, inner, results;
  Ints ids;
  Floats weights;
  RoutedExpertsArgs args;
};

}  // namespace

TEST_CASE("routed_experts has the bits of its parts", "[experts]") {
  struct Case {
    std::uint32_t hidden, inter, experts, per_token;
    bool has_nan = false;  // in a score
  };
  Seeded random(20260308);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const Encoding encoding : {Encoding::native, Encoding::int8}) {
        for (const Case& c : {Case{512, 256, 128, 8},
                              {1024, 512, 60, 5},
                              {512, 264, 9, 9},
                              {64, 48, 5, 1},
                              {512, 768, 512, 32},
                              {512, 256, 9, 9},
                              {2560, 256, 8, 5},
                              {512, 256, 16, 4, true}}) {
          for (const std::uint32_t rows : {1u, 2u}) {
            INFO(target << " " << name_of(type) << " " << name_of(encoding) << " " << c.hidden
                        << " " << c.per_token << " of " << c.experts << ", " << rows);
            // A few experts' weights serve for all, and some routers' for two, so that there are ties.
            Experts experts(type, encoding, 3, rows, c.hidden, c.inter, random);
            experts.table.resize(c.experts);
            for (std::uint32_t e = 3; e < c.experts; ++e) experts.table[e] = experts.table[e % 3];
            Tensor router = Tensor::random(type, std::size_t{c.experts} * c.hidden, random.rng);
            // Scores of about 1, so that the weight of every expert is seen in what comes out.
            for (std::size_t i = 0; i < router.size(); ++i)
              router.set(i, router.get(i) / std::sqrt(static_cast<float>(c.hidden)));
            for (std::uint32_t e = 1; e + 1 < c.experts; e += 2)
              for (std::uint32_t i = 0; i < c.hidden; ++i)
                router.set((e + 1) * c.hidden + i, router.get(e * c.hidden + i));
            if (c.has_nan) router.set(0, NAN);
            const Tensor norm = Tensor::random(type, c.hidden, random.rng);
            Ints given;
            for (std::uint32_t i = 0; i < rows * c.per_token; ++i)
              given.push_back(static_cast<std::int32_t>(c.experts - c.per_token + i % c.per_token));
            for (const Ints* ids : {static_cast<const Ints*>(nullptr), &std::as_const(given)}) {
              Layer parts(experts, router, norm, ids, c.per_token);
              parts.args.route.normalise = rows == 1;
              run(&IKernels::norm_linear, parts.args.router);
              run(&IKernels::route, parts.args.route);
              run(&IKernels::expert_pairs, parts.args.pairs());
              run(&IKernels::combine, parts.args.combine());
              Layer whole(experts, router, norm, ids, c.per_token);
              whole.args.route.normalise = rows == 1;
              run(&IKernels::routed_experts, whole.args);
              CHECK(whole.residual.bytes() == parts.residual.bytes());
              CHECK(whole.residual.bytes() != experts.x.bytes());
              // Every weight of a row is a share of a sum with all its scores in it.
              for (std::size_t i = 0; i < whole.residual.size(); ++i)
                REQUIRE(std::isnan(whole.residual.get(i)) == c.has_nan);
            }
          }
        }
      }
    }
  });
}

}  // namespace sluice::test
