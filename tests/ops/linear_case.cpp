#include "tests/ops/linear_case.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/weights/encoding.hpp"
#include "tests/catch.hpp"

namespace sluice::test {
namespace {

// Where the code of weight i lies within its row, counted in nibbles: eight weights to a word, the
// even ones in its lower half.
std::size_t nibble_of(std::size_t i) { return i / 8 * 8 + i % 8 / 2 + (i % 2 == 0 ? 0 : 4); }

void put_nibble(std::byte* row, std::size_t nibble, std::uint32_t code) {
  row[nibble / 2] |= static_cast<std::byte>(code << (nibble % 2 * 4));
}

std::uint32_t nibble_at(const std::byte* row, std::size_t nibble) {
  return std::to_integer<std::uint32_t>(row[nibble / 2]) >> (nibble % 2 * 4) & 15u;
}

// An f32 sum of k products in some order: each of log2 or k additions rounds; the square root of k
// is what random signs leave, with a factor of 4 to spare.
double sum_error(double absolute, std::uint32_t k) {
  return absolute * 0x1p-24 * (4 * std::sqrt(static_cast<double>(k)) + 4);
}

}  // namespace

void Linear::fill(Seeded& random) {
  x = Tensor::random(type, std::size_t{rows} * k, random.rng);
  bias_values = Tensor::random(weight_type, n, random.rng);
  residual_values = Tensor::random(type, std::size_t{rows} * n, random.rng);
  if (encoding == Encoding::native) {
    weight = Tensor::random(weight_type, std::size_t{n} * k, random.rng, 0.05);
    return;
  }
  const std::size_t row_bytes = code_row_bytes(encoding, k);
  codes.assign(n * row_bytes, std::byte{0});
  for (std::size_t row = 0; row < n; ++row) {
    std::byte* const to = codes.data() + row * row_bytes;
    for (std::size_t i = 0; i < k; ++i) {
      if (encoding == Encoding::int4)
        put_nibble(to, nibble_of(i), random.between(0, 15));
      else
        to[i] = static_cast<std::byte>(static_cast<int>(random.between(0, 254)) - 127);
    }
  }
  // A scale for each row, or scales and zero points in turn for each group.
  const std::size_t scale_bytes = n * scale_row_bytes(encoding, k);
  const bool of_groups = encoding == Encoding::int4;
  Tensor values(of_groups ? DType::f16 : DType::f32, scale_bytes / (of_groups ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i)
    values.set(i, of_groups && i % 2 == 1 ? random.between(0, 16)
                                          : 1e-5 * static_cast<double>(random.between(1, 1000)));
  scales = values.bytes();
}

double Linear::weight_at(std::size_t row, std::size_t i) const {
  if (encoding == Encoding::native) return weight.get(row * k + i);
  const std::byte* const from = codes.data() + row * code_row_bytes(encoding, k);
  const std::byte* const scale = scales.data() + row * scale_row_bytes(encoding, k);
  if (encoding == Encoding::int8) {
    Tensor one(DType::f32, 1);
    std::memcpy(one.data(), scale, 4);
    return one.get(0) * std::to_integer<std::int8_t>(from[i]);
  }
  Tensor group(DType::f16, 2);
  std::memcpy(group.data(), scale + i / 128 * 4, 4);
  return group.get(0) * (nibble_at(from, nibble_of(i)) - group.get(1));
}

Linear Linear::from_output(std::uint32_t first) const {
  Linear part = *this;
  part.n = n - first;
  if (encoding == Encoding::native) {
    part.weight = Tensor(weight_type, std::size_t{part.n} * k);
    std::memcpy(part.weight.data(), weight.data() + weight.bytes().size() / n * first,
                part.weight.bytes().size());
  } else {
    const auto cut = [&](const Bytes& all) {
      return Bytes(all.begin() + static_cast<std::ptrdiff_t>(all.size() / n * first), all.end());
    };
    part.codes = cut(codes);
    part.scales = cut(scales);
  }
  return part;
}

LinearArgs Linear::args(std::uint32_t count) const {
  LinearArgs args;
  args.weight = encoding == Encoding::native ? weight.data() : codes.data();
  args.weight_type = weight_type;
  args.encoding = encoding;
  args.scales = encoding == Encoding::native ? nullptr : scales.data();
  args.type = type;
  args.rows = count;
  args.n = n;
  args.k = k;
  return args;
}

int Linear::family(std::uint32_t count) const { return product_family(args(count)); }

bool Linear::dequantises() const { return test::dequantises(args(rows)); }

Tensor Linear::run(std::uint32_t first, std::uint32_t count) {
  Tensor out(type, std::size_t{count} * n), product = out;
  LinearArgs with = args(count);
  with.x = x.at(std::size_t{first} * k);
  if (bias) {
    with.bias = bias_values.data();
    with.bias_type = weight_type;
  }
  if (residual) {
    std::memcpy(out.data(), residual_values.at(std::size_t{first} * n), out.bytes().size());
    with.residual = out.data();
    with.out = product.data();  // kernels may keep the product there
  } else {
    with.out = out.data();
  }
  test::run(&IKernels::linear, with);
  return out;
}

std::string describe(const Linear& c) {
  return std::string(c.encoding == Encoding::native ? name_of(c.weight_type)
                                                    : name_of(c.encoding)) +
         " weights, " + std::string(name_of(c.type)) + " [" + std::to_string(c.rows) + ", " +
         std::to_string(c.k) + "] to " + std::to_string(c.n) + (c.bias ? " with bias" : "") +
         (c.residual ? " with residual" : "");
}

std::size_t wrong_results(Linear& c) {
  const Tensor out = c.run(0, c.rows);
  std::vector<double> weights(std::size_t{c.n} * c.k), x(c.x.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = c.weight_at(i / c.k, i % c.k);
    // The product of scale and code in f32, then the type.
    if (c.dequantises()) weights[i] = round_to(c.weight_type, round_to(DType::f32, weights[i]));
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = c.x.get(i);
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < c.rows; ++r) {
    for (std::size_t i = 0; i < c.n; ++i) {
      double sum = 0, absolute = 0;
      for (std::size_t j = 0; j < c.k; ++j) {
        const double product = x[r * c.k + j] * weights[i * c.k + j];
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
  return wrong;
}

void check_batches(Linear& c) {
  const Tensor all = c.run(0, c.rows);
  const std::size_t row_bytes = std::size_t{c.n} * size_of(c.type);
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
  for (const std::uint32_t count : {64u, 96u, 97u, 150u, 257u, 299u}) check(c.rows - count, count);
}

void check_outputs(Linear& c) {
  const Tensor all = c.run(0, c.rows);
  for (const std::uint32_t first : {1u, 2u, 33u, 66u}) {
    Linear part = c.from_output(first);
    const Tensor out = part.run(0, c.rows);
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < c.rows; ++r) {
      for (std::size_t i = 0; i < part.n; ++i)
        wrong += out.get(r * part.n + i) != all.get(r * c.n + first + i);
    }
    CAPTURE(first);
    CHECK(wrong == 0);
  }
}

}  // namespace sluice::test
