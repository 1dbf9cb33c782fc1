#include <cstring>

#include "tests/catch.hpp"
#include "tests/ops/bed.hpp"
#include "tests/ops/paged_cache.hpp"

namespace sluice::test {
namespace {

struct Rope {
  DType type;
  std::uint32_t heads, kv_heads, head_dim;
  bool norm;
  Ints sequences, positions;
  std::uint32_t context = 128;

  Tensor qkv, q_norm, k_norm, cos, sin;

  std::size_t columns() const { return std::size_t{heads + 2 * kv_heads} * head_dim; }

  void fill(Seeded& random) {
    qkv = Tensor::random(type, sequences.size() * columns(), random.rng, 2);
    q_norm = Tensor::random(type, head_dim, random.rng);
    k_norm = Tensor::random(type, head_dim, random.rng);
    cos = Tensor(DType::f32, std::size_t{context} * head_dim / 2);
    sin = cos;
    for (std::size_t i = 0; i < cos.size(); ++i) {
      cos.set(i, std::cos(0.37 * static_cast<double>(i)));
      sin.set(i, std::sin(0.37 * static_cast<double>(i)));
    }
  }

  Tensor run(PagedCache& cache) const {
    Tensor out = qkv;
    RopeStoreArgs args;
    args.qkv = out.data();
    args.type = type;
    args.rows = {nullptr, sequences.data(), positions.data(),
                 static_cast<std::uint32_t>(sequences.size())};
    args.heads = heads;
    if (norm) {
      args.q_norm = q_norm.data();
      args.k_norm = k_norm.data();
    }
    args.norm_type = type;
    args.eps = 1e-6f;
    args.cos = reinterpret_cast<const float*>(cos.data());
    args.sin = reinterpret_cast<const float*>(sin.data());
    args.context = context;
    args.kv = cache.layer();
    test::run(&IKernels::rope_store, args);
    return out;
  }

  // Every step rounded on its own. The scale of the norm is in double.
  std::vector<double> expected(std::size_t row, std::size_t column, const Tensor& weight) const {
    std::vector<double> x(head_dim);
    double squares = 0;
    for (std::size_t i = 0; i < head_dim; ++i) {
      x[i] = qkv.get(row * columns() + column + i);
      squares += x[i] * x[i];
    }
    if (norm) {
      const double scale = 1 / std::sqrt(squares / head_dim + 1e-6);
      for (std::size_t i = 0; i < head_dim; ++i) {
        x[i] = round_to(type, round_to(type, x[i] * scale) * weight.get(i));
      }
    }
    std::vector<double> y(head_dim);
    const std::size_t half = head_dim / 2;
    for (std::size_t i = 0; i < head_dim; ++i) {
      const std::size_t at = static_cast<std::size_t>(positions[row]) * half + i % half;
      const double c = round_to(type, cos.get(at));
      const double s = round_to(type, sin.get(at));
      const double turned = i < half ? -x[i + half] : x[i - half];
      y[i] = round_to(type, round_to(type, x[i] * c) + round_to(type, turned * s));
    }
    return y;
  }
};

}  // namespace

TEST_CASE("rope_store rotates and stores with each rounding of the reference", "[rope]") {
  Seeded random(20260120);
  CAPTURE(random.seed);
  constexpr std::uint32_t kHeadDims[] = {4, 16, 32, 48, 64, 80, 128};
  for_each_target([&](const std::string& target) {
    for (const DType type : kTypes) {
      for (int round = 0; round < 6; ++round) {
        const std::uint32_t kv_heads = random.between(1, 3);
        Rope c{type,
               kv_heads * random.between(1, 4),
               kv_heads,
               random.one_of(kHeadDims),
               round % 2 == 1,
               {1, 1, 1, 0, 2},
               {62, 63, 64, 0, 127},
               128,
               {},
               {},
               {},
               {},
               {}};
        c.fill(random);
        PagedCache cache(type, 3, 2, kv_heads, c.head_dim, random);
        const Tensor out = c.run(cache);
        INFO(target << " " << name_of(type) << " " << c.heads << "/" << kv_heads << " x "
                    << c.head_dim << (c.norm ? " with norms" : ""));
        // Exact, but for what the f32 mean of a norm decides; f32 itself has no narrower rounding.
        std::size_t compared = 0, different = 0;
        const auto compare = [&](double got, double expected, double size) {
          ++compared;
          if (type == DType::f32 && !c.norm) {
            REQUIRE(std::abs(got - expected) <=
                    ulp(type, size));  // the sum may fuse with a product
          } else if (!c.norm) {
            REQUIRE(got == expected);
          } else {
            REQUIRE(std::abs(got - expected) <= 4 * ulp(type, size));
            different += got != expected;
          }
        };
        const double size = 8;  // a little more than any normalised value
        for (std::size_t r = 0; r < c.sequences.size(); ++r) {
          const auto sequence = static_cast<std::size_t>(c.sequences[r]);
          const auto position = static_cast<std::size_t>(c.positions[r]);
          for (std::size_t h = 0; h < c.heads; ++h) {
            const auto y = c.expected(r, h * c.head_dim, c.q_norm);
            for (std::size_t i = 0; i < c.head_dim; ++i) {
              compare(out.get(r * c.columns() + h * c.head_dim + i), y[i], size);
            }
          }
          for (std::size_t h = 0; h < kv_heads; ++h) {
            const std::size_t column = (c.heads + h) * c.head_dim;
            const auto y = c.expected(r, column, c.k_norm);
            for (std::size_t i = 0; i < c.head_dim; ++i) {
              compare(cache.get(false, sequence, position, h, i), y[i], size);
              const std::size_t v = r * c.columns() + column + kv_heads * c.head_dim + i;
              REQUIRE(cache.get(true, sequence, position, h, i) == c.qkv.get(v));
              REQUIRE(out.get(v) == c.qkv.get(v));
            }
          }
        }
        if (type != DType::f32) CHECK(different <= compared / 50 + 2);
        // Nothing else of the cache was touched: it was all NaN.
        std::size_t written = 0;
        for (std::size_t i = 0; i < cache.pages().size(); ++i) {
          written += !std::isnan(cache.pages().get(i));
        }
        CHECK(written == c.sequences.size() * 2 * kv_heads * c.head_dim);
      }
    }
  });
}

TEST_CASE("rope_store gives a row the same bits in every batch", "[rope]") {
  Seeded random(20260121);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    INFO(target);
    Rope c{DType::bf16, 6, 2, 80, true, {}, {}, 128, {}, {}, {}, {}, {}};
    for (std::int32_t p = 0; p < 100; ++p) {
      c.sequences.push_back(0);
      c.positions.push_back(p);
    }
    c.fill(random);
    PagedCache together(DType::bf16, 1, 2, 2, 80, random);
    PagedCache apart = together;
    const Tensor all = c.run(together);
    for (std::size_t r = 0; r < 100; ++r) {
      Rope row = c;
      row.sequences = {0};
      row.positions = {static_cast<std::int32_t>(r)};
      row.qkv = Tensor(DType::bf16, c.columns());
      std::memcpy(row.qkv.data(), c.qkv.at(r * c.columns()), row.qkv.bytes().size());
      const Tensor alone = row.run(apart);
      CHECK(std::memcmp(alone.data(), all.data() + r * alone.bytes().size(),
                        alone.bytes().size()) == 0);
    }
    CHECK(same_bytes(together.pages(), apart.pages()));
  });
}

}  // namespace sluice::test
