#include <bit>
#include <cstring>

#include "tests/catch.hpp"
#include "tests/ops/bed.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {
namespace {

Tensor embed(const Tensor& table, DType type, std::uint32_t hidden, const Ints& tokens) {
  Tensor out(type, tokens.size() * hidden);
  EmbedArgs args;
  args.rows.tokens = tokens.data();
  args.rows.count = static_cast<std::uint32_t>(tokens.size());
  args.table = table.data();
  args.table_type = table.type();
  args.out = out.data();
  args.type = type;
  args.hidden = hidden;
  args.vocab = static_cast<std::uint32_t>(table.size() / hidden);
  run(&IKernels::embed, args);
  return out;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

double silu(double x) { return x / (1 + std::exp(-x)); }

Tensor silu_mul(const Tensor& gate_up, std::uint32_t rows, std::uint32_t inter) {
  Tensor out(gate_up.type(), std::size_t{rows} * inter);
  run(&IKernels::silu_mul, SiluMulArgs{gate_up.data(), out.data(), gate_up.type(), rows, inter});
  return out;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, std::uint32_t rows, float eps) {
  Tensor out(x.type(), x.size());
  const auto cols = static_cast<std::uint32_t>(weight.size());
  run(&IKernels::rms_norm,
      RmsNormArgs{x.data(), weight.data(), weight.type(), out.data(), x.type(), rows, cols, eps});
  return out;
}

}  // namespace

TEST_CASE("embed widens every bf16 and f16 exactly", "[elementwise]") {
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const DType type : {DType::bf16, DType::f16}) {
      Tensor table(type, 65536);
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        std::memcpy(table.at(i), &bits, 2);
      }
      const Tensor out = embed(table, DType::f32, 65536, {0});
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < 65536; ++i) wrong += !same(table.get(i), out.get(i));
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("embed rounds f32 to the nearest and ties to even", "[elementwise]") {
  Seeded random(20260110);
  CAPTURE(random.seed);
  // Every upper half of an f32, with lower halves about the ties of bf16 and of f16.
  constexpr std::uint32_t kLower[] = {0,      1,      0x7fff, 0x8000, 0x8001,
                                      0xffff, 0x0fff, 0x1000, 0x1001, 0x3000};
  Tensor table(DType::f32, 65536);
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const std::uint32_t lower : kLower) {
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const std::uint32_t bits = i << 16 | lower;
        std::memcpy(table.at(i), &bits, 4);
      }
      for (const DType type : {DType::bf16, DType::f16}) {
        const Tensor out = embed(table, type, 65536, {0});
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < 65536; ++i) {
          wrong += !same(round_to(type, table.get(i)), out.get(i));
        }
        CAPTURE(lower, type);
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("embed gathers rows", "[elementwise]") {
  Seeded random(20260111);
  CAPTURE(random.seed);
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      const Tensor table = Tensor::random(from, 7 * 37, random.rng);
      const Ints tokens{6, 0, 3, 3, 5};
      const Tensor out = embed(table, to, 37, tokens);
      for (std::size_t r = 0; r < tokens.size(); ++r) {
        for (std::size_t i = 0; i < 37; ++i) {
          const auto row = static_cast<std::size_t>(tokens[r]);
          REQUIRE(out.get(r * 37 + i) == round_to(to, table.get(row * 37 + i)));
        }
      }
    }
  }
}

TEST_CASE("silu_mul is right for every bf16 and f16 gate", "[elementwise]") {
  for_each_target([&](const std::string& target) {
    for (const DType type : {DType::bf16, DType::f16}) {
      INFO(target << " " << name_of(type));
      Tensor gate_up(type, 2 * 65536);
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        std::memcpy(gate_up.at(i), &bits, 2);
        gate_up.set(65536 + i, 1.5);
      }
      const Tensor out = silu_mul(gate_up, 1, 65536);
      std::size_t off_by_one = 0, wrong = 0;
      for (std::size_t i = 0; i < 65536; ++i) {
        const double gate = gate_up.get(i);
        if (std::isnan(gate) || gate == -INFINITY) {
          wrong += !std::isnan(out.get(i));  // -inf / inf, as the reference has it
          continue;
        }
        // Below -88 exp(-x) is infinite in f32 and the result 0, as in the reference.
        const double inner = gate < -88.7 ? -0.0 : round_to(type, round_to(DType::f32, silu(gate)));
        const double expected = round_to(type, inner * 1.5);
        if (out.get(i) == expected || (gate < -86 && std::abs(out.get(i)) < 1e-35)) continue;
        // A rounding of silu the other way at a tie moves the product by up to two places.
        (std::abs(out.get(i) - expected) <= 2 * ulp(type, expected) ? off_by_one : wrong) += 1;
      }
      CHECK(wrong == 0);
      CHECK(off_by_one <= 8);
    }
  });
}

TEST_CASE("silu_mul in f32 agrees with double to 4e-7", "[elementwise]") {
  Seeded random(20260112);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const std::uint32_t inter : {1u, 7u, 16u, 33u, 5000u}) {
      const Tensor gate_up = Tensor::random(DType::f32, 2 * 3 * inter, random.rng, 12);
      const Tensor out = silu_mul(gate_up, 3, inter);
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t i = 0; i < inter; ++i) {
          const double expected =
              silu(gate_up.get(r * 2 * inter + i)) * gate_up.get((r * 2 + 1) * inter + i);
          REQUIRE(std::abs(out.get(r * inter + i) - expected) <= 4e-7 * std::abs(expected));
        }
      }
    }
  });
}

TEST_CASE("rms_norm agrees with double within one place of each rounding", "[elementwise]") {
  Seeded random(20260113);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (const DType weight_type : {type, DType::f32}) {
        for (const std::uint32_t cols : {1u, 5u, 16u, 48u, 127u, 576u, 1031u}) {
          INFO(target << " " << name_of(type) << " * " << name_of(weight_type) << " " << cols);
          const Tensor x = Tensor::random(type, 4 * cols, random.rng, 3);
          const Tensor weight = Tensor::random(weight_type, cols, random.rng);
          const Tensor out = rms_norm(x, weight, 4, 1e-6f);
          std::size_t different = 0;
          for (std::size_t r = 0; r < 4; ++r) {
            double squares = 0;
            for (std::size_t i = 0; i < cols; ++i) squares += std::pow(x.get(r * cols + i), 2);
            const double scale = 1 / std::sqrt(squares / cols + 1e-6);
            for (std::size_t i = 0; i < cols; ++i) {
              const double normal = x.get(r * cols + i) * scale;
              const double expected = round_to(type, round_to(type, normal) * weight.get(i));
              const double got = out.get(r * cols + i);
              const double place =
                  ulp(type, normal) * std::abs(weight.get(i)) + ulp(type, expected);
              if (type == DType::f32) {
                REQUIRE(std::abs(got - expected) <= 1e-6 * std::abs(expected));
              } else {
                REQUIRE(std::abs(got - expected) <= place);
                different += got != expected;
              }
            }
          }
          // Only where the f32 mean decides a tie.
          CHECK(different <= 4 * cols / 100 + 1);
        }
      }
    }
  });
}

TEST_CASE("rms_norm gives a row the same bits in every batch", "[elementwise]") {
  Seeded random(20260114);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    INFO(target);
    for (const DType type : kTypes) {
      const Tensor x = Tensor::random(type, 300 * 500, random.rng);
      const Tensor weight = Tensor::random(type, 500, random.rng);
      const Tensor all = rms_norm(x, weight, 300, 1e-5f);
      for (std::size_t r = 0; r < 300; r += 23) {
        Tensor row(type, 500);
        std::memcpy(row.data(), x.data() + r * 500 * size_of(type), row.bytes().size());
        const Tensor alone = rms_norm(row, weight, 1, 1e-5f);
        CHECK(std::memcmp(alone.data(), all.data() + r * alone.bytes().size(),
                          alone.bytes().size()) == 0);
      }
    }
  });
}

}  // namespace sluice::test
