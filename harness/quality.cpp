#include "harness/quality.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/weights/convert.hpp"

namespace sluice {
namespace {

std::vector<float> row_of(const Logits& logits, std::size_t row) {
  std::vector<float> out(logits.vocab);
  convert(logits.type, logits.values.data() + row * logits.vocab * size_of(logits.type), DType::f32,
          reinterpret_cast<std::byte*>(out.data()), logits.vocab);
  return out;
}

std::size_t rows_of(const Logits& logits) {
  return logits.values.size() / (logits.vocab * size_of(logits.type));
}

// The place of the largest value; NaN where there is something that is not finite.
struct Top {
  std::size_t id = 0;
  double value = 0;
};

Top top_of(std::span<const float> row) {
  const auto at = std::max_element(row.begin(), row.end());
  const bool finite = std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
  return {static_cast<std::size_t>(at - row.begin()), finite ? double{*at} : NAN};
}

double sum_of_exp(std::span<const float> row, double most) {
  double sum = 0;
  for (const float x : row) sum += std::exp(x - most);
  return sum;
}

struct RowDivergence {
  double kl = 0;
  bool agreed = false;
};

// With p = exp(a - log A), q = exp(b - log B): sum of p (log p - log q) = sum of p (a - b) - log A + log B.
RowDivergence divergence_of(std::span<const float> reference, std::span<const float> tested) {
  const Top a = top_of(reference), b = top_of(tested);
  double sum = 0, weighted = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double p = std::exp(reference[i] - a.value);
    sum += p;
    weighted += p * ((reference[i] - a.value) - (tested[i] - b.value));
  }
  const double kl = weighted / sum - std::log(sum) + std::log(sum_of_exp(tested, b.value));
  // Rounding can bring it below 0, where it cannot be.
  return {std::isnan(kl) ? kl : std::max(kl, 0.0), a.id == b.id};
}

void check_finite(double value) {
  if (!std::isfinite(value))
    throw Error(
        "logits are not finite: the model's activations overflowed, or its weights are damaged");
}

}  // namespace

double Quality::perplexity() const { return std::exp(surprise / static_cast<double>(tokens)); }

void add_quality(Quality& to, const Logits& logits, std::span<const std::int32_t> next) {
  std::vector<double> surprises(next.size());
  parallel_for(next.size(), [&](std::size_t i) {
    const std::vector<float> row = row_of(logits, i);
    const double most = top_of(row).value;
    surprises[i] =
        std::log(sum_of_exp(row, most)) - (row[static_cast<std::size_t>(next[i])] - most);
  });
  for (const double surprise : surprises) {
    check_finite(surprise);
    to.surprise += surprise;
    ++to.tokens;
  }
}

void add_divergence(Divergence& to, const Logits& reference, const Logits& tested) {
  std::vector<RowDivergence> rows(rows_of(tested));
  if (rows_of(reference) != rows.size() || reference.vocab != tested.vocab)
    throw Error("{} rows of {} logits are compared with {} of {}", rows.size(), tested.vocab,
                rows_of(reference), reference.vocab);
  parallel_for(rows.size(), [&](std::size_t i) {
    rows[i] = divergence_of(row_of(reference, i), row_of(tested, i));
  });
  for (const RowDivergence& row : rows) {
    check_finite(row.kl);
    to.kl += row.kl;
    to.largest_kl = std::max(to.largest_kl, row.kl);
    to.agreed += row.agreed;
    ++to.positions;
  }
}

}  // namespace sluice
