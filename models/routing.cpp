#include "models/routing.hpp"

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

constexpr std::uint64_t kGuessSeed = 0x67756573;

// Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t seed_of(std::uint64_t seed, std::uint32_t sequence, std::uint32_t position,
                      std::int32_t layer) {
  const std::uint64_t token = mixed(seed ^ mixed(std::uint64_t{sequence} << 32 | position));
  return mixed(token ^ static_cast<std::uint64_t>(layer));
}

class UniformRouting final : public IRouting {
 public:
  UniformRouting(std::uint32_t experts, std::uint64_t seed) : experts_(experts), seed_(seed) {}

  // Floyd's way to draw a set without repetition: one random number for each member.
  void choose(std::uint32_t sequence, std::uint32_t position, std::int32_t layer,
              std::span<std::int32_t> ids) override {
    std::uint64_t random = seed_of(seed_, sequence, position, layer);
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

void mix_guesses(std::span<const std::int32_t> chosen, std::uint32_t experts, double accuracy,
                 const std::function<double()>& random, const std::function<std::int32_t()>& other,
                 std::span<std::int32_t> ids) {
  const auto index = [](std::int32_t id) { return static_cast<std::size_t>(id); };
  std::vector<std::int32_t> right(chosen.begin(), chosen.end());
  std::vector<bool> taken(experts, false);  // or right
  for (const std::int32_t id : chosen) taken[index(id)] = true;
  std::size_t others = experts - chosen.size();
  for (std::int32_t& id : ids) {
    if (others == 0 || (random() < accuracy && !right.empty())) {
      const auto at = static_cast<std::ptrdiff_t>(random() * static_cast<double>(right.size()));
      id = right[static_cast<std::size_t>(at)];
      right.erase(right.begin() + at);
      continue;
    }
    // What is hardly ever drawn is taken in order in the end.
    constexpr int kDraws = 1000;
    id = other();
    for (int draw = 0; taken[index(id)] && draw < kDraws; ++draw) id = other();
    if (taken[index(id)])
      id = static_cast<std::int32_t>(std::ranges::find(taken, false) - taken.begin());
    taken[index(id)] = true;
    --others;
  }
}

void IRouting::foresee(const RoutedToken& token, std::span<const std::int32_t> chosen,
                       std::span<std::int32_t> ids) {
  std::uint64_t state = seed_of(kGuessSeed, token.sequence, token.position, token.layer);
  const auto random = [&] {
    state = mixed(state);
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  const auto other = [&] { return static_cast<std::int32_t>(random() * token.experts); };
  mix_guesses(chosen, token.experts, kForesight, random, other, ids);
}

std::unique_ptr<IRouting> make_uniform_routing(std::uint32_t experts, std::uint64_t seed) {
  return std::make_unique<UniformRouting>(experts, seed);
}

}  // namespace sluice
