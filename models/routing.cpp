#include "models/routing.hpp"

#include <algorithm>

namespace sluice {
namespace {

// Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

class UniformRouting final : public IRouting {
 public:
  UniformRouting(std::uint32_t experts, std::uint64_t seed) : experts_(experts), seed_(seed) {}

  // Floyd's way to draw a set without repetition: one random number for each member.
  void choose(std::uint32_t sequence, std::uint32_t position, std::int32_t layer,
              std::span<std::int32_t> ids) override {
    std::uint64_t random = mixed(seed_ ^ mixed(std::uint64_t{sequence} << 32 | position));
    random = mixed(random ^ static_cast<std::uint64_t>(layer));
    const std::size_t first = experts_ - ids.size();
    for (std::size_t k = 0; k < ids.size(); ++k) {
      random = mixed(random);
      const auto drawn = static_cast<std::int32_t>(random % (first + k + 1));
      const auto so_far = ids.first(k);
      const bool taken = std::ranges::find(so_far, drawn) != so_far.end();
      ids[k] = taken ? static_cast<std::int32_t>(first + k) : drawn;
    }
    std::ranges::sort(ids);
  }

 private:
  std::uint32_t experts_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<IRouting> make_uniform_routing(std::uint32_t experts, std::uint64_t seed) {
  return std::make_unique<UniformRouting>(experts, seed);
}

}  // namespace sluice
