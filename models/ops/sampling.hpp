// Choosing a token from logits, filtered as the Hugging Face reference does it: temperature, top-k,
// top-p, min-p, in this order. The same logits, parameters and random number choose the same token.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/ops/kernels.hpp"

namespace sluice {

struct Candidate {
  std::int32_t id = 0;
  float logit = 0;
  double weight = 0;  // its probability, up to a factor that all have in common
};

// The largest logit's id, ties to the lower. Ids in `suppressed` do not take part; at least one
// other must be there.
std::int32_t greedy(std::span<const float> logits, std::span<const std::int32_t> suppressed);

// Keeps its memory from one choice to the next.
class Sampler {
 public:
  // The tokens that the filters leave, from the likeliest down, ties by ascending id.
  //   top_k   the top_k largest, and what equals the last of them. 0: all
  //   top_p   the fewest from the likeliest down that hold top_p of the probability. 1: all
  //   min_p   those at least min_p times as likely as the likeliest
  // The likeliest always stays. `temperature` must not be 0, all logits finite.
  std::span<const Candidate> filter(std::span<const float> logits, const SamplingParams& params,
                                    std::span<const std::int32_t> suppressed);

  // Of these, the one where the running sum of their probabilities first exceeds `uniform`, in
  // [0, 1). The greedy choice where `temperature` is 0.
  std::int32_t choose(std::span<const float> logits, const SamplingParams& params,
                      std::span<const std::int32_t> suppressed, double uniform);

 private:
  // A token as a number that is the smaller, the likelier it is: its logit's bits, turned around,
  // then its id. Numbers sort several times faster than records.
  using Key = std::uint64_t;

  void select(std::span<const float> logits, const SamplingParams& params,
              std::span<const std::int32_t> suppressed);
  void sort_first(std::size_t count);
  double weight(Key key) const;

  std::vector<Key> left_;  // the first `sorted_` in order, the others behind them
  std::vector<Key> ranked_;
  std::vector<Candidate> candidates_;
  std::size_t sorted_ = 0;
  double largest_ = 0;  // logit
  double temperature_ = 1;
  double total_ = 0;  // of the weights in left_
};

}  // namespace sluice
