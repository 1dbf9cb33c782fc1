#include "models/ops/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.hpp"

namespace sluice {
namespace {

constexpr std::size_t kFirstSorted = 256;
constexpr std::uint32_t kSign = 0x80000000u;

bool contains(std::span<const std::int32_t> ids, std::size_t id) {
  return std::find(ids.begin(), ids.end(), static_cast<std::int32_t>(id)) != ids.end();
}

// The bits of floats, of the larger the smaller number.
std::uint32_t descending(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 is 0
  return bits & kSign ? bits : ~(bits | kSign);
}

float logit_of(std::uint64_t key) {
  const auto bits = static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>(bits & kSign ? bits : ~bits & ~kSign);
}

std::int32_t id_of(std::uint64_t key) { return static_cast<std::int32_t>(key & 0xffffffffu); }

}  // namespace

std::int32_t greedy(std::span<const float> logits, std::span<const std::int32_t> suppressed) {
  std::int32_t best = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (best >= 0 && !(logits[id] > logits[static_cast<std::size_t>(best)])) continue;
    if (!contains(suppressed, id)) best = static_cast<std::int32_t>(id);
  }
  if (best < 0) throw Error("all {} tokens are suppressed", logits.size());
  return best;
}

// Sorting a whole vocabulary costs more than a small model's head: only as much as is looked at.
void Sampler::sort_first(std::size_t count) {
  while (sorted_ < std::min(count, left_.size())) {
    const std::size_t end = std::min(left_.size(), std::max(kFirstSorted, sorted_ * 8));
    const auto begin = left_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto middle = left_.begin() + static_cast<std::ptrdiff_t>(end);
    std::nth_element(begin, middle, left_.end());
    std::sort(begin, middle);
    sorted_ = end;
  }
}

double Sampler::weight(Key key) const {
  return std::exp((static_cast<double>(logit_of(key)) - largest_) / temperature_);
}

void Sampler::select(std::span<const float> logits, const SamplingParams& params,
                     std::span<const std::int32_t> suppressed) {
  left_.clear();
  sorted_ = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!contains(suppressed, id)) left_.push_back(Key{descending(logits[id])} << 32 | id);
  }
  if (left_.empty()) throw Error("all {} tokens are suppressed", logits.size());

  const auto top_k = static_cast<std::size_t>(std::max(params.top_k, 0));
  if (top_k != 0 && top_k < left_.size()) {
    ranked_ = left_;
    const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(top_k - 1);
    std::nth_element(ranked_.begin(), last, ranked_.end());
    std::erase_if(left_, [least = *last >> 32](Key key) { return key >> 32 > least; });
  }

  largest_ = logit_of(*std::min_element(left_.begin(), left_.end()));
  temperature_ = params.temperature;
  const auto sum_weights = [&] {
    total_ = 0;
    for (const Key key : left_) total_ += weight(key);
  };
  // Added before anything is sorted: by id.
  sum_weights();
  if (params.top_p < 1) {
    const double enough = params.top_p * total_;
    double sum = 0;
    std::size_t count = 0;
    do {
      sort_first(count + 1);
      sum += weight(left_[count++]);
    } while (count < left_.size() && sum < enough);
    left_.resize(count);
    sorted_ = count;
    total_ = sum;
  }
  if (params.min_p > 0) {
    std::erase_if(left_, [&](Key key) { return weight(key) < params.min_p; });
    sorted_ = std::min(sorted_, left_.size());
    sum_weights();
  }
}

std::span<const Candidate> Sampler::filter(std::span<const float> logits,
                                           const SamplingParams& params,
                                           std::span<const std::int32_t> suppressed) {
  select(logits, params, suppressed);
  sort_first(left_.size());
  candidates_.clear();
  for (const Key key : left_) candidates_.push_back({id_of(key), logit_of(key), weight(key)});
  return candidates_;
}

std::int32_t Sampler::choose(std::span<const float> logits, const SamplingParams& params,
                             std::span<const std::int32_t> suppressed, double uniform) {
  if (params.temperature == 0) return greedy(logits, suppressed);
  select(logits, params, suppressed);
  const double target = uniform * total_;
  double sum = 0;
  for (std::size_t i = 0; i < left_.size(); ++i) {
    sort_first(i + 1);
    sum += weight(left_[i]);
    if (sum > target) return id_of(left_[i]);
  }
  // Only where the sum in this order ends a rounding short of the total.
  return id_of(left_.back());
}

}  // namespace sluice
