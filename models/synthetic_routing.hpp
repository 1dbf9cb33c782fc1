// Choices of experts that come back as often as a trained model's do. Random weights route nearly
// evenly, and no cache of experts helps there.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "models/routing.hpp"

namespace sluice {

// A token's experts in a layer: each of its sequence's last token is kept with probability
// `stickiness`. The others are drawn, each different: with probability `recency` from what the
// sequence has used in this layer, the n-th last with a probability that falls geometrically, its mean
// kRecentDepth; else by popularity, the n-th most popular proportional to n^-zipf. Popularity belongs
// to the layer, all sequences share it.
//
// The defaults give one sequence of 512 tokens, 8 of 128 experts each, the hit rates of least recently used
// that Qwen3-30B-A3B has on text: .47 .65 .75 .83 .92 .97 for 8, 16, 24, 32, 48, 64 experts a layer.
// Popularity and stickiness alone come near these (zipf 1.55, stickiness 0), but only with favourites
// so fixed that counting uses would be the best policy by far, which it is not on text.
struct SyntheticRoutingParams {
  double zipf = 1.2;
  double stickiness = 0.25;
  double recency = 0.55;
  double foresight = kForesight;  // how often a guess at a layer's choice is right; see foresee()
  std::uint64_t seed = 1;
};

class SyntheticRouting final : public IRouting {
 public:
  static constexpr double kRecentDepth = 20;

  // Throws Error where a probability is none.
  SyntheticRouting(std::int32_t layers, std::int32_t experts, const SyntheticRoutingParams& params);

  // A function of the seed, the slot, how many sequences began there since begin_run(), and of what
  // was asked about that sequence before.
  void choose(std::uint32_t sequence, std::uint32_t position, std::int32_t layer,
              std::span<std::int32_t> ids) override;

  // Guesses that are wrong are drawn as choices are: what a router errs towards is what it often takes.
  void foresee(const RoutedToken& token, std::span<const std::int32_t> chosen,
               std::span<std::int32_t> ids) override;

  // From here on the same calls give the same choices as they did from the start.
  void begin_run() { histories_.clear(); }

 private:
  // Of one sequence slot in one layer.
  struct History {
    std::uint64_t sequences = 0;       // that began here
    std::vector<std::int32_t> recent;  // each expert once, the last used one last
    std::size_t last = 0;              // how many of those are the last token's
  };

  std::uint64_t seed_of(std::uint64_t purpose, std::uint32_t sequence, std::uint32_t position,
                        std::int32_t layer) const;
  std::int32_t draw(const History& history, std::int32_t layer, double kind, double place) const;

  std::int32_t experts_;
  SyntheticRoutingParams params_;
  std::vector<std::int32_t> popular_;  // [layers, experts], the most popular first
  std::vector<double> popularity_;     // cumulated, by place
  std::vector<double> depth_;          // likewise, of what is recent
  std::map<std::pair<std::uint32_t, std::int32_t>, History> histories_;
};

}  // namespace sluice
