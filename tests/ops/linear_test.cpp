#include <cstring>
#include <utility>

#include "tests/catch.hpp"
#include "tests/ops/bed.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {
namespace {

struct Linear {
  DType type, weight_type;
  std::uint32_t rows, n, k;
  bool bias, residual;

  Tensor x, weight, bias_values, residual_values;

  void fill(Seeded& random) {
    x = Tensor::random(type, std::size_t{rows} * k, random.rng);
    weight = Tensor::random(weight_type, std::size_t{n} * k, random.rng, 0.05);
    bias_values = Tensor::random(weight_type, n, random.rng);
    residual_values = Tensor::random(type, std::size_t{rows} * n, random.rng);
  }

  int family(std::uint32_t count) const {
    LinearArgs args;
    args.type = type;
    args.weight_type = weight_type;
    args.rows = count;
    args.n = n;
    args.k = k;
    return product_family(args);
  }

  // Rows [first, first + count) as the kernel computes them.
  Tensor run(std::uint32_t first, std::uint32_t count) {
    Tensor out(type, std::size_t{count} * n), product = out;
    LinearArgs args;
    args.x = x.at(std::size_t{first} * k);
    args.weight = weight.data();
    args.weight_type = weight_type;
    args.type = type;
    args.rows = count;
    args.n = n;
    args.k = k;
    if (bias) {
      args.bias = bias_values.data();
      args.bias_type = weight_type;
    }
    if (residual) {
      std::memcpy(out.data(), residual_values.at(std::size_t{first} * n), out.bytes().size());
      args.residual = out.data();
      args.out = product.data();  // kernels may keep the product there
    } else {
      args.out = out.data();
    }
    test::run(&IKernels::linear, args);
    return out;
  }
};

std::string describe(const Linear& c) {
  return std::string(name_of(c.weight_type)) + " weights, " + std::string(name_of(c.type)) + " [" +
         std::to_string(c.rows) + ", " + std::to_string(c.k) + "] to " + std::to_string(c.n) +
         (c.bias ? " with bias" : "") + (c.residual ? " with residual" : "");
}

// An f32 sum of k products in some order: each of log2 or k additions rounds; the square root of k
// is what random signs leave, with a factor of 4 to spare.
double sum_error(double absolute, std::uint32_t k) {
  return absolute * 0x1p-24 * (4 * std::sqrt(static_cast<double>(k)) + 4);
}

void compare_with_double(Linear& c) {
  const Tensor out = c.run(0, c.rows);
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < c.rows; ++r) {
    for (std::size_t i = 0; i < c.n; ++i) {
      double sum = 0, absolute = 0;
      for (std::size_t j = 0; j < c.k; ++j) {
        const double product = c.x.get(r * c.k + j) * c.weight.get(i * c.k + j);
        sum += product;
        absolute += std::abs(product);
      }
      if (c.bias) {
        sum += c.bias_values.get(i);
        absolute += std::abs(c.bias_values.get(i));
      }
      double expected = sum;
      double allowed = sum_error(absolute, c.k) + ulp(c.type, sum) / 2;
      if (c.residual) {
        expected += c.residual_values.get(r * c.n + i);
        allowed += ulp(c.type, expected) / 2;
      }
      wrong += !(std::abs(out.get(r * c.n + i) - expected) <= allowed * 1.001);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("linear agrees with a double sum within one rounding", "[linear]") {
  Seeded random(20260101);
  CAPTURE(random.seed);
  constexpr std::uint32_t kRows[] = {1, 1, 2, 3, 4, 5, 6, 7, 12, 13, 17, 40, 97, 101};
  constexpr std::uint32_t kInner[] = {1,  3,  15,  16,  17,  31,  33,  48,
                                      64, 80, 129, 511, 513, 576, 1100};
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
                   random.rng() % 2 == 0,
                   {},
                   {},
                   {},
                   {}};
          c.fill(random);
          INFO(target << ": " << describe(c));
          compare_with_double(c);
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
        Linear c{type, type, rows, 40, 104, true, true, {}, {}, {}, {}};
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
      for (const auto& [n, k] : {std::pair{45u, 80u}, {45u, 523u}, {45u, 1088u}, {48u, 1088u}}) {
        Linear c{type, type, 300, n, k, true, true, {}, {}, {}, {}};
        c.fill(random);
        INFO(target << ": " << describe(c));
        const Tensor all = c.run(0, c.rows);
        const std::size_t row_bytes = std::size_t{c.n} * size_of(type);
        const auto check = [&](std::uint32_t first, std::uint32_t count) {
          const Tensor part = c.run(first, count);
          CAPTURE(first, count);
          std::size_t wrong = 0;
          for (std::uint32_t r = 0; r < count; ++r) {
            const std::byte* const row = part.data() + r * row_bytes;
            if (c.family(count) == c.family(c.rows)) {
              wrong += std::memcmp(row, all.data() + (first + r) * row_bytes, row_bytes) != 0;
            } else if (c.family(count) == c.family(1)) {
              wrong += std::memcmp(row, c.run(first + r, 1).data(), row_bytes) != 0;
            }
          }
          CHECK(wrong == 0);
        };
        std::uint32_t first = 0;
        for (std::uint32_t count = 1; first + count <= c.rows; first += count, ++count)
          check(first, count);
        for (const std::uint32_t count : {64u, 96u, 97u, 150u, 257u, 299u})
          check(300 - count, count);
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
      Linear c{DType::bf16, DType::bf16, rows, 67, 200, false, false, {}, {}, {}, {}};
      c.fill(random);
      const Tensor all = c.run(0, rows);
      // The last columns alone: the same weights, from another place and another tile.
      for (std::uint32_t from : {1u, 2u, 33u, 66u}) {
        Linear part = c;
        part.n = 67 - from;
        Tensor weight(DType::bf16, std::size_t{part.n} * c.k);
        std::memcpy(weight.data(), c.weight.at(std::size_t{from} * c.k), weight.bytes().size());
        part.weight = weight;
        const Tensor out = part.run(0, rows);
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t i = 0; i < part.n; ++i) {
            CHECK(out.get(r * part.n + i) == all.get(r * c.n + from + i));
          }
        }
      }
    }
  });
}

TEST_CASE("linear lets f16 overflow to infinity and damage spread", "[linear]") {
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const std::uint32_t rows : {1u, 2u, 20u}) {
      Linear c{DType::f16, DType::f16, rows, 3, 64, false, false, {}, {}, {}, {}};
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
