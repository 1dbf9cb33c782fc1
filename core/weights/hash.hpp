// Hashes that are the same everywhere and for good: fingerprints of files, streams of random bits.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice {

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a permutation of 64 bits whose
// values at consecutive multiples of kGolden pass for random.
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Not against an adversary. `start` chains calls.
inline std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t start) {
  std::uint64_t hash = mix(start + kGolden + bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t n = bytes.size() < sizeof(word) ? bytes.size() : sizeof(word);
    std::memcpy(&word, bytes.data(), n);
    hash = mix(hash ^ word) + kGolden;
    bytes = bytes.subspan(n);
  }
  return hash;
}

// For much data: four chains side by side, several times as fast as one.
inline std::uint64_t hash_bulk(std::span<const std::byte> bytes, std::uint64_t start) {
  constexpr std::size_t kChains = 4;
  std::array<std::uint64_t, kChains> chains{}, words;
  for (; bytes.size() >= sizeof(words); bytes = bytes.subspan(sizeof(words))) {
    std::memcpy(words.data(), bytes.data(), sizeof(words));
    for (std::size_t i = 0; i < kChains; ++i) chains[i] = mix(chains[i] ^ words[i]) + kGolden;
  }
  return hash_bytes(bytes, hash_bytes(std::as_bytes(std::span(chains)), start));
}

}  // namespace sluice
