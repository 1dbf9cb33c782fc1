// How well logits predict the tokens of a text, and how far they are from other logits. Everything is
// computed in double, on all cores, and is the same however many there are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.hpp"

namespace sluice {

// Sums over positions of a text; logarithms are natural.
struct Quality {
  std::uint64_t tokens = 0;
  double surprise = 0;  // minus the logarithm of each token's probability

  double perplexity() const;
};

// From a reference's distribution of the next token to the tested one: sums over positions.
struct Divergence {
  std::uint64_t positions = 0;
  std::uint64_t agreed = 0;  // the most likely token is the same; of equal ones the lowest id
  double kl = 0;             // KL(reference || tested)
  double largest_kl = 0;

  double mean_kl() const { return kl / static_cast<double>(positions); }
  double agreement() const { return static_cast<double>(agreed) / static_cast<double>(positions); }
};

// Rows of logits [rows, vocab] of `type`.
struct Logits {
  std::span<const std::byte> values;
  DType type = DType::bf16;
  std::uint32_t vocab = 0;
};

// Adds the rows of `logits`; next[i] is the token that follows the i-th. Throws Error where a logit is
// not finite.
void add_quality(Quality& to, const Logits& logits, std::span<const std::int32_t> next);

// Adds the rows of `tested` against those of `reference`, as many and as long. Throws likewise.
void add_divergence(Divergence& to, const Logits& reference, const Logits& tested);

}  // namespace sluice
