#include <cstring>
#include <utility>

#include "tests/catch.hpp"
#include "tests/ops/linear_case.hpp"

namespace sluice::test {

TEST_CASE("linear agrees with a double sum within one rounding", "[linear]") {
  Seeded random(20260101);
  CAPTURE(random.seed);
  constexpr std::uint32_t kRows[] = {1, 1, 2, 3, 4, 5, 6, 7, 12, 13, 17, 40, 97, 101};
  constexpr std::uint32_t kInner[] = {1,  3,  15,  16,  17,  31,  33,   48,
                                      64, 80, 129, 511, 513, 576, 1100, 2048};
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const DType weight_type : kTypes) {
        if (type != DType::f32 && weight_type != type && weight_type != DType::f32) continue;
        for (int round = 0; round < 4; ++round) {
          Linear c{type,
                   weight_type,
                   random.one_of(kRows),
                   random.between(1, 70),
                   random.one_of(kInner),
                   random.rng() % 2 == 0,
                   random.rng() % 2 == 0};
          c.fill(random);
          INFO(target << ": " << describe(c));
          CHECK(wrong_results(c) == 0);
        }
      }
    }
  });
}

TEST_CASE("linear rounds the sum and then the residual and nothing else", "[linear]") {
  Seeded random(20260105);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const std::uint32_t rows : {1u, 4u, 50u}) {
        Linear c{type, type, rows, 40, 104, true, true};
        c.fill(random);
        // Multiples of 1/64 up to 2: every sum of their products is exact in f32, in any order.
        for (Tensor* values : {&c.x, &c.weight, &c.bias_values, &c.residual_values}) {
          for (std::size_t i = 0; i < values->size(); ++i) {
            values->set(i, static_cast<double>(random.between(0, 256)) / 64 - 2);
          }
        }
        INFO(target << ": " << describe(c));
        const Tensor out = c.run(0, rows);
        std::size_t wrong = 0;
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t i = 0; i < c.n; ++i) {
            double sum = c.bias_values.get(i);
            for (std::size_t j = 0; j < c.k; ++j) {
              sum += c.x.get(r * c.k + j) * c.weight.get(i * c.k + j);
            }
            const double residual = c.residual_values.get(r * c.n + i);
            wrong += out.get(r * c.n + i) != round_to(type, residual + round_to(type, sum));
          }
        }
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("linear gives a row the same bits in every batch", "[linear]") {
  Seeded random(20260102);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const auto& [n, k] :
           {std::pair{45u, 80u}, {45u, 523u}, {45u, 1088u}, {48u, 1088u}, {45u, 4096u}}) {
        Linear c{type, type, 300, n, k, true, true};
        c.fill(random);
        INFO(target << ": " << describe(c));
        check_batches(c);
      }
    }
  });
}

TEST_CASE("linear gives an output the same bits whatever stands beside it", "[linear]") {
  Seeded random(20260103);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const std::uint32_t rows : {1u, 5u, 30u}) {
      Linear c{DType::bf16, DType::bf16, rows, 67, 200, false, false};
      c.fill(random);
      check_outputs(c);
    }
  });
}

TEST_CASE("linear lets f16 overflow to infinity and damage spread", "[linear]") {
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const std::uint32_t rows : {1u, 2u, 20u}) {
      Linear c{DType::f16, DType::f16, rows, 3, 64, false, false};
      c.x = Tensor(DType::f16, rows * 64);
      c.weight = Tensor(DType::f16, 3 * 64);
      for (std::size_t i = 0; i < rows * 64; ++i) c.x.set(i, 64);
      for (std::size_t i = 0; i < 64; ++i) {
        c.weight.set(i, 16);         // 65536: beyond the largest f16
        c.weight.set(64 + i, 15.5);  // 63488
        c.weight.set(128 + i, i == 63 ? NAN : 1);
      }
      const Tensor out = c.run(0, rows);
      CHECK(std::isinf(out.get(rows * 3 - 3)));
      CHECK(out.get(rows * 3 - 2) == 63488);
      CHECK(std::isnan(out.get(rows * 3 - 1)));
    }
  });
}

}  // namespace sluice::test
