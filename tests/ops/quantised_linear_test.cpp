// linear over codes, compared with sums in double precision over weights that the tests decode.
#include "tests/catch.hpp"
#include "tests/ops/linear_case.hpp"

namespace sluice::test {
namespace {

constexpr Encoding kQuantised[] = {Encoding::int8, Encoding::int4};

// Calls `body` for each encoding, on each kind of kernels.
template <typename Body>
void for_each_encoding(const Body& body) {
  for (const Encoding encoding : kQuantised)
    for_each_target([&](const std::string& target) { body(encoding, target); });
}

}  // namespace

TEST_CASE("linear over codes agrees with a double sum within one rounding", "[linear]") {
  Seeded random(20260106);
  CAPTURE(random.seed);
  constexpr std::uint32_t kInner[] = {1,   7,   8,   15,  16,  31,  32,   33,   63,   64,
                                      65,  96,  127, 128, 129, 160, 200,  256,  300,  511,
                                      512, 513, 576, 639, 640, 641, 1024, 1025, 1100, 2048};
  for_each_encoding([&](Encoding encoding, const std::string& target) {
    for (const DType type : kTypes) {
      // Every number of rows, and every kind of end that a row can have.
      for (std::uint32_t rows = 1; rows <= 40; ++rows) {
        Linear c{type,
                 random.one_of(kTypes),
                 rows,
                 random.between(1, 70),
                 kInner[(rows - 1) % std::size(kInner)],
                 random.rng() % 2 == 0,
                 random.rng() % 2 == 0,
                 encoding};
        c.fill(random);
        INFO(target << ": " << describe(c));
        CHECK(wrong_results(c) == 0);
      }
      for (const std::uint32_t k : kInner) {
        Linear c{type, type, random.one_of({1u, 3u, 14u}), 33, k, true, true, encoding};
        c.fill(random);
        INFO(target << ": " << describe(c));
        CHECK(wrong_results(c) == 0);
      }
    }
  });
}

TEST_CASE("linear over codes rounds no weight", "[linear]") {
  // One product a sum, which the double sum allows half a unit of f32.
  Seeded random(20260107);
  CAPTURE(random.seed);
  for_each_encoding([&](Encoding encoding, const std::string& target) {
    for (const std::uint32_t rows : {1u, 5u, 30u}) {
      Linear c{DType::f32, DType::bf16, rows, 64, 300, false, false, encoding};
      c.fill(random);
      std::vector<std::size_t> of_row(rows);
      for (std::uint32_t r = 0; r < rows; ++r) {
        of_row[r] = random.between(0, c.k - 1);
        for (std::uint32_t i = 0; i < c.k; ++i) c.x.set(r * c.k + i, i == of_row[r] ? 1 : 0);
      }
      INFO(target << ": " << describe(c));
      const Tensor out = c.run(0, rows);
      std::size_t wrong = 0;
      for (std::uint32_t r = 0; r < rows; ++r) {
        for (std::uint32_t i = 0; i < c.n; ++i)
          wrong += out.get(r * c.n + i) != round_to(DType::f32, c.weight_at(i, of_row[r]));
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("linear over codes takes small and large activations", "[linear]") {
  // Kernels may multiply with numbers near the ends of a type's range.
  Seeded random(20260110);
  CAPTURE(random.seed);
  for_each_encoding([&](Encoding encoding, const std::string& target) {
    for (const DType type : {DType::f32, DType::bf16})
      for (const double scale : {0x1p-50, 0x1p60})
        for (const std::uint32_t rows : {1u, 2u, 5u, 14u}) {
          Linear c{type, type, rows, 33, rows < 5 ? 2048u : 576u, false, false, encoding};
          c.fill(random);
          for (std::size_t i = 0; i < c.x.size(); ++i) c.x.set(i, c.x.get(i) * scale);
          INFO(target << ": " << describe(c) << ", times " << scale);
          CHECK(wrong_results(c) == 0);
        }
  });
}

TEST_CASE("linear over codes gives a row the same bits in every batch", "[linear]") {
  Seeded random(20260108);
  CAPTURE(random.seed);
  for_each_encoding([&](Encoding encoding, const std::string& target) {
    for (const DType type : kTypes) {
      for (const auto& [n, k] :
           {std::pair{45u, 80u}, {45u, 523u}, {48u, 1088u}, {48u, 2048u}, {45u, 6144u}}) {
        Linear c{type, type, 300, n, k, true, true, encoding};
        c.fill(random);
        INFO(target << ": " << describe(c));
        check_batches(c);
      }
    }
  });
}

TEST_CASE("linear over codes gives an output the same bits whatever stands beside it", "[linear]") {
  Seeded random(20260109);
  CAPTURE(random.seed);
  for_each_encoding([&](Encoding encoding, const std::string& target) {
    INFO(target << ", " << name_of(encoding));
    for (const std::uint32_t rows : {1u, 5u, 30u}) {
      Linear c{DType::f32, DType::f32, rows, 67, 200, false, false, encoding};
      c.fill(random);
      check_outputs(c);
    }
  });
}

}  // namespace sluice::test
