// What the tests of declarations share: see ops_test.cpp.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "models/ops/ops.hpp"
#include "tests/catch.hpp"
#include "tests/ops/arena_device.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {

inline constexpr std::uint32_t kRows = 5, kHidden = 48, kHeads = 4, kKvHeads = 2, kHeadDim = 16;
inline constexpr std::uint32_t kColumns = (kHeads + 2 * kKvHeads) * kHeadDim;
inline constexpr std::uint32_t kSequences = 3, kPages = 2, kContext = 100, kVocab = 40;

// Operands in one arena, and the check of what an operation on them declared.
class Rig {
 public:
  Rig() : ops_(device_, 1) {}

  ArenaDevice& device() { return device_; }
  Ops& ops() { return ops_; }

  template <typename T>
  T* ints(const std::vector<T>& values) {
    auto* to = static_cast<T*>(device_.allocate(values.size() * sizeof(T), "ints"));
    std::copy(values.begin(), values.end(), to);
    return to;
  }
  std::byte* values(std::size_t count, double scale = 1) {
    const Tensor tensor = Tensor::random(DType::bf16, count, random_.rng, scale);
    auto* to = static_cast<std::byte*>(device_.allocate(tensor.bytes().size(), "values"));
    std::copy(tensor.bytes().begin(), tensor.bytes().end(), to);
    return to;
  }
  RowIndex rows() {
    return {ints<std::int32_t>({3, 1, 39, 0, 7}), ints<std::int32_t>({0, 0, 2, 2, 1}),
            ints<std::int32_t>({63, 64, 0, 1, 99}), kRows};
  }
  KvLayer kv() {
    KvLayer kv;
    kv.page_bytes = 2 * kKvHeads * kPageTokens * kHeadDim * 2;
    kv.page_count = kSequences * kPages;
    kv.pages = values(kv.page_count * kv.page_bytes / 2);
    kv.page_table = ints<std::int32_t>({5, 0, 3, 1, 2, 4});
    kv.sequences = kSequences;
    kv.pages_per_sequence = kPages;
    kv.kv_heads = kKvHeads;
    kv.head_dim = kHeadDim;
    return kv;
  }

  // Runs the last operation again, first as it was, then with everything damaged that it did not
  // declare: both must write the same, and only where they declared it.
  void check() {
    const Recorded op = device_.last();
    CAPTURE(op.name);
    REQUIRE(op.body.has_value());
    std::vector<std::byte>& arena = device_.arena();
    const std::vector<std::byte> before = device_.before_last();

    const std::vector<std::byte> after = arena;
    for (std::size_t i = 0; i < arena.size(); ++i) {
      if (before[i] != after[i] && !device_.lies_in(i, op.writes)) {
        FAIL("byte " << i << " was written and not declared");
      }
    }
    arena = before;
    for (std::size_t i = 0; i < arena.size(); ++i) {
      if (!device_.lies_in(i, op.reads)) arena[i] = std::byte{0xff};
    }
    const std::vector<std::byte> damaged = arena;
    (*op.body)(nullptr);
    for (std::size_t i = 0; i < arena.size(); ++i) {
      if (!device_.lies_in(i, op.writes)) {
        if (arena[i] != damaged[i]) FAIL("byte " << i << " was written and not declared");
      } else if (arena[i] != after[i]) {
        // A byte that may be written but is not keeps what it was.
        if (arena[i] != damaged[i] || before[i] != after[i]) {
          FAIL("byte " << i << " depends on memory that was not declared");
        }
      }
    }
    arena = after;
  }

 private:
  ArenaDevice device_;
  Ops ops_;
  Seeded random_{20260150};
};

inline std::uint64_t size_of(const std::vector<Range>& ranges) {
  std::uint64_t bytes = 0;
  for (const Range& range : ranges) bytes += range.size;
  return bytes;
}

inline Weights slab_of(std::byte* data, std::uint64_t bytes) {
  return {data, range_of(data, bytes)};
}

}  // namespace sluice::test
