// What the kernels' tests compare with: values in double precision, rounded by arithmetic rather
// than by bits.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <random>
#include <vector>

#include "core/dtype.hpp"

namespace sluice::test {

inline constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

// The nearest value of `type`, ties to the even last place; infinite beyond the largest.
double round_to(DType type, double value);
// The distance between neighbours of `type` around `value`.
double ulp(DType type, double value);

using Bytes = std::pmr::vector<std::byte>;

// An array of `type`, filled with values of that type.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType type, std::size_t count) : type_(type), bytes_(count * size_of(type)) {}
  static Tensor random(DType type, std::size_t count, std::mt19937_64& rng, double scale = 1);

  DType type() const { return type_; }
  std::size_t size() const { return bytes_.size() / size_of(type_); }
  double get(std::size_t i) const;
  void set(std::size_t i, double value);
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  std::byte* at(std::size_t i) { return bytes_.data() + i * size_of(type_); }
  const Bytes& bytes() const { return bytes_; }
  void fill(std::byte with) { bytes_.assign(bytes_.size(), with); }

 private:
  DType type_ = DType::f32;
  Bytes bytes_;
};

// Rather than a comparison whose failure prints all bytes.
inline bool same_bytes(const Tensor& a, const Tensor& b) { return a.bytes() == b.bytes(); }

// The seed of a test's random numbers, printed with every failure of the test.
struct Seeded {
  explicit Seeded(std::uint64_t of) : seed(of), rng(of) {}
  std::uint64_t seed;
  std::mt19937_64 rng;

  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(rng() % (high - low + 1));
  }
  template <typename T, std::size_t N>
  T one_of(const T (&values)[N]) {
    return values[rng() % N];
  }
};

}  // namespace sluice::test
