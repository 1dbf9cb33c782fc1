#include "models/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace sluice {
namespace {

// The reference divides a number by a tensor as reciprocal, then product: two roundings.
float divide(double number, float by) { return 1.0f / by * static_cast<float>(number); }

// theta^(2i / head_dim). Through double: the nearest float, whatever the mathematics library.
float period(double theta, std::uint32_t i, std::uint32_t head_dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
  return static_cast<float>(
      std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
}

std::vector<float> standard(const RopeConfig& rope, std::uint32_t head_dim) {
  std::vector<float> out(head_dim / 2);
  for (std::uint32_t i = 0; i < out.size(); ++i) out[i] = 1.0f / period(rope.theta, i, head_dim);
  return out;
}

std::vector<float> linear(const RopeConfig& rope, std::uint32_t head_dim) {
  std::vector<float> out = standard(rope, head_dim);
  for (float& f : out) f /= static_cast<float>(rope.factor);
  return out;
}

// Fast elements keep their frequency, slow ones turn `factor` times slower, a ramp between.
std::vector<float> yarn(const RopeConfig& rope, std::uint32_t head_dim) {
  // The element that makes `rotations` turns over the original positions.
  const auto element = [&](double rotations) {
    return head_dim * std::log(rope.original_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = element(rope.beta_fast), high = element(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;  // no step function

  std::vector<float> out(head_dim / 2);
  for (std::uint32_t i = 0; i < out.size(); ++i) {
    const float turn = period(rope.theta, i, head_dim);
    const float kept = 1.0f / turn;
    const float slowed = 1.0f / (static_cast<float>(rope.factor) * turn);
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float keep = 1.0f - ramp;
    out[i] = slowed * (1.0f - keep) + kept * keep;
  }
  return out;
}

// Short waves stay, long ones are stretched, those between are blended.
std::vector<float> llama3(const RopeConfig& rope, std::uint32_t head_dim) {
  const auto long_wave = static_cast<float>(rope.original_positions / rope.low_freq_factor);
  const auto short_wave = static_cast<float>(rope.original_positions / rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  std::vector<float> out = standard(rope, head_dim);
  for (float& f : out) {
    const float wave = divide(2 * std::numbers::pi, f);
    if (wave > long_wave) {
      f = f / factor;
    } else if (!(wave < short_wave)) {
      const float smooth = (divide(rope.original_positions, wave) - low) / span;
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
  return out;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, std::uint32_t head_dim) {
  switch (rope.type) {
    case RopeType::standard: return standard(rope, head_dim);
    case RopeType::linear: return linear(rope, head_dim);
    case RopeType::yarn: return yarn(rope, head_dim);
    case RopeType::llama3: return llama3(rope, head_dim);
  }
  throw Error("unknown kind of rotary embedding: {}", static_cast<int>(rope.type));
}

void fill_rope_tables(const RopeConfig& rope, std::uint32_t head_dim, std::uint32_t positions,
                      std::span<float> cos, std::span<float> sin) {
  const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
  const auto scale = static_cast<float>(rope.attention_factor);
  std::size_t at = 0;
  for (std::uint32_t position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      const double angle = static_cast<float>(position) * frequency;
      cos[at] = static_cast<float>(std::cos(angle)) * scale;
      sin[at] = static_cast<float>(std::sin(angle)) * scale;
      ++at;
    }
  }
}

}  // namespace sluice
