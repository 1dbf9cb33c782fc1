// Experts as the batteries of their operations take them.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "models/ops/expert_args.hpp"
#include "tests/ops/linear_case.hpp"

namespace sluice::test {

using Floats = std::pmr::vector<float>;

// Experts of a layer, each in a slab of its own, and rows to take through them.
struct Experts {
  Experts(DType of, Encoding encoded, std::uint32_t experts, std::uint32_t rows_,
          std::uint32_t hidden_, std::uint32_t inter_, Seeded& random)
      : type(of), rows(rows_), hidden(hidden_), inter(inter_), table(experts) {
    shape = {.encoding = encoded, .weight_type = of, .hidden = hidden, .inter = inter};
    for (std::uint32_t e = 0; e < experts; ++e) {
      gate_up.push_back({of, of, 1, 2 * inter, hidden, false, false, encoded});
      down.push_back({of, of, 1, hidden, inter, false, false, encoded});
      gate_up.back().fill(random);
      down.back().fill(random);
      slabs.push_back(slab_of(gate_up.back(), down.back()));
    }
    for (std::uint32_t e = 0; e < experts; ++e) table[e] = slabs[e].data();
    x = Tensor::random(of, std::size_t{rows} * hidden, random.rng);
  }

  Tensor run(const Ints& ids, const ExpertSet& which) {
    const auto per_token = static_cast<std::uint32_t>(ids.size() / rows);
    Tensor inner(type, ids.size() * 2 * inter), out(type, ids.size() * hidden);
    out.fill(std::byte{0x7f});
    test::run(&IKernels::expert_pairs, ExpertPairsArgs{.x = x.data(),
                                                       .type = type,
                                                       .rows = rows,
                                                       .per_token = per_token,
                                                       .ids = ids.data(),
                                                       .table = table.data(),
                                                       .which = which,
                                                       .shape = shape,
                                                       .inner = inner.data(),
                                                       .out = out.data()});
    return out;
  }

  // How many results of one pair differ from the double loop's by more than the roundings may.
  std::size_t wrong(const Tensor& out, std::size_t pair, std::size_t row,
                    std::size_t expert) const {
    std::vector<double> value(inter), error(inter);
    for (std::size_t j = 0; j < inter; ++j) {
      const auto [gate, gate_error] =
          product(gate_up[expert], j, [&](std::size_t i) { return x.get(row * hidden + i); });
      const auto [up, up_error] = product(gate_up[expert], inter + j,
                                          [&](std::size_t i) { return x.get(row * hidden + i); });
      const double silu = gate / (1 + std::exp(-gate));
      const double silu_error = 1.1 * gate_error + ulp(type, silu);
      value[j] = silu * up;
      error[j] =
          silu_error * (std::abs(up) + up_error) + std::abs(silu) * up_error + ulp(type, value[j]);
    }
    std::size_t count = 0;
    for (std::size_t n = 0; n < hidden; ++n) {
      double sum = 0, allowed = 0, absolute = 0;
      for (std::size_t j = 0; j < inter; ++j) {
        const double weight = down[expert].weight_at(n, j);
        sum += weight * value[j];
        absolute += std::abs(weight * value[j]);
        allowed += std::abs(weight) * error[j];
      }
      allowed += ulp(type, sum) + absolute * 1e-5;
      count += !(std::abs(out.get(pair * hidden + n) - sum) <= allowed);
    }
    return count;
  }

  DType type;
  std::uint32_t rows, hidden, inter;
  std::vector<Linear> gate_up, down;
  std::vector<Bytes> slabs;
  std::pmr::vector<const std::byte*> table;
  ExpertShape shape;
  Tensor x;

 private:
  // A sum with its error: f32's and one rounding.
  template <typename F>
  std::pair<double, double> product(const Linear& matrix, std::size_t n, const F& at) const {
    double sum = 0, absolute = 0;
    for (std::size_t i = 0; i < matrix.k; ++i) {
      const double term = at(i) * matrix.weight_at(n, i);
      sum += term;
      absolute += std::abs(term);
    }
    return {sum, absolute * 1e-5 + ulp(type, sum)};
  }

  Bytes slab_of(const Linear& first, const Linear& second) {
    Bytes slab;
    const auto put = [&](const Bytes& bytes) {
      slab.resize((slab.size() + 15) / 16 * 16);
      const std::uint64_t at = slab.size();
      slab.insert(slab.end(), bytes.begin(), bytes.end());
      return at;
    };
    const auto put_matrix = [&](const Linear& m, std::uint64_t& data, std::uint64_t& scales) {
      data = put(m.encoding == Encoding::native ? m.weight.bytes() : m.codes);
      if (m.encoding != Encoding::native) scales = put(m.scales);
    };
    put_matrix(first, shape.gate_up, shape.gate_up_scales);
    put_matrix(second, shape.down, shape.down_scales);
    return slab;
  }
};

}  // namespace sluice::test
