#include "core/weights/synthetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/weights/convert.hpp"
#include "core/weights/hash.hpp"

namespace sluice {
namespace {

// Elements are made in blocks that start at multiples of this, whatever part is asked for.
constexpr std::uint64_t kBlock = 1024;
constexpr std::uint64_t kPerHash = 4;  // elements of 16 random bits from one hash

// 65536 levels, symmetric about 0, of a uniform distribution with the standard deviation 0.02.
constexpr float kHalfLevels = 32767.5f;
constexpr float kStep = 0.02f * 1.7320508f / kHalfLevels;

using Block = std::array<float, kBlock>;

void fill_random(std::uint64_t key, std::uint64_t block, Block& to) {
  std::array<std::uint64_t, kBlock / kPerHash> hashes;
  const std::uint64_t counter = block * hashes.size();
  for (std::uint64_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = mix(key + (counter + i) * kGolden);
  }
  std::array<std::uint16_t, kBlock> levels;
  std::memcpy(levels.data(), hashes.data(), sizeof(hashes));
  for (std::uint64_t i = 0; i < kBlock; ++i) {
    to[i] = (static_cast<float>(levels[i]) - kHalfLevels) * kStep;
  }
}

bool is_norm(const TensorSpec& tensor) {
  return tensor.shape.size() == 1 && tensor.name.find("norm") != std::string::npos;
}

}  // namespace

SyntheticWeights::SyntheticWeights(std::string name, std::uint64_t seed, DType stored)
    : name_(std::move(name)), seed_(seed), stored_(stored) {}

DType SyntheticWeights::stored_type(const TensorSpec&) const { return stored_; }

bool SyntheticWeights::has(const std::string&) const { return true; }

void SyntheticWeights::read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
                            std::byte* to) const {
  const std::uint64_t key = hash_bytes(std::as_bytes(std::span(tensor.name)), mix(seed_ + kGolden));
  const bool ones = is_norm(tensor);
  Block values;
  values.fill(1.0f);
  for (const std::uint64_t end = first + n; first < end;) {
    const std::uint64_t block = first / kBlock, from = first % kBlock;
    const std::uint64_t count = std::min(kBlock - from, end - first);
    if (!ones) fill_random(key, block, values);
    convert(DType::f32, reinterpret_cast<const std::byte*>(values.data() + from), stored_, to,
            count);
    to += count * size_of(stored_);
    first += count;
  }
}

std::string SyntheticWeights::describe() const {
  return fmt::format("synthetic {}, seed {}, {}", name_, seed_, name_of(stored_));
}

}  // namespace sluice
