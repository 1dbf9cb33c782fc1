#include <cstring>
#include <utility>

#include "tests/catch.hpp"
#include "tests/ops/bed.hpp"
#include "tests/ops/paged_cache.hpp"

namespace sluice::test {
namespace {

struct Attention {
  DType type;
  std::uint32_t heads, kv_heads, head_dim;
  Ints sequences, positions;
  Tensor qkv;

  std::size_t columns() const { return std::size_t{heads + 2 * kv_heads} * head_dim; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }

  void add(std::int32_t sequence, std::int32_t first, std::int32_t count) {
    for (std::int32_t p = first; p < first + count; ++p) {
      sequences.push_back(sequence);
      positions.push_back(p);
    }
  }

  bool consecutive = false;  // all rows are, of one sequence

  AttentionArgs arguments() const {
    AttentionArgs args;
    args.type = type;
    args.consecutive = consecutive;
    return args;
  }

  // Rows [first, first + count).
  Tensor run(PagedCache& cache, std::size_t first, std::size_t count) {
    Tensor out(type, count * heads * head_dim);
    AttentionArgs args = arguments();
    args.qkv = qkv.at(first * columns());
    args.rows = {nullptr, sequences.data() + first, positions.data() + first,
                 static_cast<std::uint32_t>(count)};
    args.heads = heads;
    args.scale = scale();
    args.kv = cache.layer();
    args.out = out.data();
    test::run(&IKernels::attention, args);
    return out;
  }
  Tensor run(PagedCache& cache) { return run(cache, 0, positions.size()); }
};

std::string describe(const Attention& c) {
  return std::string(name_of(c.type)) + " " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " x " + std::to_string(c.head_dim);
}

struct Expected {
  std::vector<double> out;      // [rows, heads * head_dim]
  std::vector<double> allowed;  // how far off it may be
};

// Each weight is rounded to the type before it is multiplied.
double rounding_of_weights(DType type) {
  switch (type) {
    case DType::f32: return 0;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
  }
  return 0;
}

Expected in_double(const Attention& c, const PagedCache& cache) {
  Expected expected;
  const std::uint32_t group = c.heads / c.kv_heads;
  for (std::size_t r = 0; r < c.positions.size(); ++r) {
    const auto sequence = static_cast<std::size_t>(c.sequences[r]);
    const auto seen = static_cast<std::size_t>(c.positions[r]) + 1;
    for (std::size_t h = 0; h < c.heads; ++h) {
      std::vector<double> weights(seen);
      double largest = -INFINITY, total = 0;
      for (std::size_t p = 0; p < seen; ++p) {
        double score = 0;
        for (std::size_t i = 0; i < c.head_dim; ++i) {
          score += c.qkv.get(r * c.columns() + h * c.head_dim + i) *
                   cache.get(false, sequence, p, h / group, i);
        }
        weights[p] = score * c.scale();
        largest = std::max(largest, weights[p]);
      }
      for (double& weight : weights) total += weight = std::exp(weight - largest);
      for (std::size_t i = 0; i < c.head_dim; ++i) {
        double sum = 0, absolute = 0, values = 0;
        for (std::size_t p = 0; p < seen; ++p) {
          const double term = weights[p] * cache.get(true, sequence, p, h / group, i) / total;
          sum += term;
          absolute += std::abs(term);
          values += std::abs(cache.get(true, sequence, p, h / group, i));
        }
        expected.out.push_back(sum);
        const double least = c.type == DType::f16 ? 0x1p-25 : 0;  // half of its smallest number
        expected.allowed.push_back(absolute * (attention_error() + rounding_of_weights(c.type)) +
                                   values * least / total + ulp(c.type, sum) / 2);
      }
    }
  }
  return expected;
}

std::size_t count_wrong(const Tensor& out, const Expected& expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    wrong += !(std::abs(out.get(i) - expected.out[i]) <= expected.allowed[i]);
  }
  return wrong;
}

}  // namespace

TEST_CASE("attention agrees with double within the roundings of weights and results",
          "[attention]") {
  Seeded random(20260130);
  CAPTURE(random.seed);
  constexpr std::uint32_t kHeadDims[] = {16, 32, 48, 64, 80, 128};
  for (const DType type : kTypes) {
    for (int round = 0; round < 3; ++round) {
      const std::uint32_t kv_heads = random.between(1, 3);
      Attention c{type, kv_heads * random.between(1, 8), kv_heads, random.one_of(kHeadDims), {}, {},
                  {}};
      c.add(2, 0, 20);    // the beginning of a prompt
      c.add(0, 250, 12);  // a chunk across spans
      c.add(1, 299, 1);   // decode
      c.add(3, 63, 1);
      c.add(4, 0, 1);
      PagedCache cache(type, 5, 5, kv_heads, c.head_dim, random);
      cache.fill_random(2, 20, random);
      cache.fill_random(0, 262, random);
      cache.fill_random(1, 300, random);
      cache.fill_random(3, 64, random);
      cache.fill_random(4, 1, random);
      c.qkv = Tensor::random(type, c.positions.size() * c.columns(), random.rng);
      const Expected expected = in_double(c, cache);
      for_each_target([&](const std::string& target) {
        INFO(target << " " << describe(c));
        CHECK(count_wrong(c.run(cache), expected) == 0);
      });
    }
  }
}

TEST_CASE("attention over a piece of a prompt agrees with double", "[attention]") {
  Seeded random(20260134);
  CAPTURE(random.seed);
  for (const DType type : kTypes) {
    for (const std::uint32_t head_dim : {64u, 80u, 128u}) {
      for (const auto& [first, count] :
           {std::pair{0, 1}, {0, 64}, {0, 130}, {200, 17}, {255, 66}}) {
        const std::uint32_t kv_heads = random.between(1, 2);
        Attention c{type, kv_heads * random.between(1, 4), kv_heads, head_dim, {}, {}, {}};
        c.consecutive = true;
        c.add(1, first, count);
        const auto end = static_cast<std::size_t>(first + count);
        PagedCache cache(type, 2, 6, kv_heads, head_dim, random);
        cache.fill_random(1, end, random);
        c.qkv = Tensor::random(type, c.positions.size() * c.columns(), random.rng);
        const Expected expected = in_double(c, cache);
        for_each_target([&](const std::string& target) {
          INFO(target << " " << describe(c) << " rows " << first << " + " << count);
          CHECK(count_wrong(c.run(cache), expected) == 0);
        });
      }
    }
  }
}

TEST_CASE("attention gives a row the same bits in every batch", "[attention]") {
  Seeded random(20260131);
  CAPTURE(random.seed);
  for (const DType type : kTypes) {
    for (const std::uint32_t group : {1u, 3u, 8u}) {
      if (group != 3 && type != DType::bf16) continue;
      Attention c{type, 2 * group, 2, 80, {}, {}, {}};
      c.add(0, 0, 300);
      c.add(1, 511, 1);
      c.add(2, 255, 3);
      PagedCache cache(type, 3, 8, 2, 80, random);
      cache.fill_random(0, 300, random);
      cache.fill_random(1, 512, random);
      cache.fill_random(2, 258, random);
      c.qkv = Tensor::random(type, c.positions.size() * c.columns(), random.rng);
      const std::size_t row_bytes = std::size_t{c.heads} * 80 * size_of(type);
      for_each_target([&](const std::string& target) {
        INFO(target << " " << describe(c));
        const Tensor all = c.run(cache);
        const auto check = [&](std::size_t first, std::size_t count) {
          const Tensor part = c.run(cache, first, count);
          CAPTURE(first, count);
          CHECK(std::memcmp(part.data(), all.data() + first * row_bytes, count * row_bytes) == 0);
        };
        for (std::size_t r = 0; r < c.positions.size(); r += 1 + r / 8) check(r, 1);
        for (const std::size_t count : {17, 257}) check(300 - count, count);
        check(299, 3);
        check(300, 4);
      });
    }
  }
}

TEST_CASE("attention does not depend on where pages lie", "[attention]") {
  Seeded random(20260132);
  CAPTURE(random.seed);
  Attention c{DType::bf16, 6, 2, 64, {}, {}, {}};
  c.add(0, 400, 1);
  c.add(0, 0, 401);
  PagedCache cache(DType::bf16, 1, 8, 2, 64, random);
  cache.fill_random(0, 401, random);
  PagedCache moved(DType::bf16, 1, 8, 2, 64, random);
  for (std::size_t p = 0; p < 401; ++p) {
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 64; ++i) {
        for (const bool value : {false, true}) {
          moved.set(value, 0, p, h, i, cache.get(value, 0, p, h, i));
        }
      }
    }
  }
  c.qkv = Tensor::random(DType::bf16, 402 * c.columns(), random.rng);
  CHECK(same_bytes(c.run(moved), c.run(cache)));
}

TEST_CASE("attention never looks at later positions", "[attention]") {
  Seeded random(20260133);
  CAPTURE(random.seed);
  for_each_target([&](const std::string& target) {
    INFO(target);
    Attention c{DType::f16, 4, 1, 48, {}, {}, {}};
    c.add(0, 0, 70);
    PagedCache cache(DType::f16, 1, 2, 1, 48, random);
    cache.fill_random(0, 70, random);
    c.qkv = Tensor::random(DType::f16, 70 * c.columns(), random.rng);
    const Tensor before = c.run(cache);
    const std::size_t row_bytes = 4 * 48 * 2;
    // Of the position 40, the key alone, then the value too.
    for (const bool value : {false, true}) {
      for (std::size_t i = 0; i < 48; ++i) cache.set(value, 0, 40, 0, i, NAN);
      const Tensor after = c.run(cache);
      CHECK(std::memcmp(before.data(), after.data(), 40 * row_bytes) == 0);
      // From there on the damage shows, it is not hidden.
      for (std::size_t r = 40; r < 70; ++r) REQUIRE(std::isnan(after.get(r * 4 * 48)));
    }
  });
}

}  // namespace sluice::test
