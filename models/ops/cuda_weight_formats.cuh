// Weights as the matrix-vector kernels read them: 16 bytes of a row at a time, turned into fragments
// of tensor core products. A format says how many weights a piece of 16 bytes is, how it becomes
// fragments of A, and in which order the activations have to stand beside it.
//
// codes() is where a row begins, and groups() where its scales do. A Row is where a lane reads: row()
// gives its beginning, moved_on() a place further on, and load() the piece at a distance from there that
// the compiler knows. Weights behind the end of a row are zeros: load() looks where its piece is in the
// row, `at` of k, unless the row is a whole number of rounds.
//
// Codes become floating-point numbers without a conversion instruction: written into the mantissa of a
// number whose last place is 1 (128 in bf16, 1024 in f16), from which that number is taken away again; or
// left as the bits of a subnormal number, with a power of two made up for beside them. All are exact.
#pragma once
#include <type_traits>

#include "core/weights/encoding.hpp"
#include "models/ops/cuda_common.cuh"

namespace sluice {

// Weights are read once: they should not push activations out of the first-level cache.
__device__ inline uint4 load_weights(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

__device__ inline uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// (bits & mask) | base in one instruction, which takes one of the two as a constant only: the compiler
// makes two of it.
template <uint32_t kMask>
__device__ inline uint32_t masked_or(uint32_t bits, uint32_t base) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(bits), "n"(kMask), "r"(base));
  return out;
}

// Two numbers of T in a register, the lower one first in memory.
__device__ inline uint32_t minus(uint32_t a, uint32_t b, __nv_bfloat16) {
  const __nv_bfloat162 d = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                   *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&d);
}
__device__ inline uint32_t minus(uint32_t a, uint32_t b, __half) {
  const __half2 d =
      __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&d);
}

// What a lane gives to one product: of each of two rows of weights, two pairs of neighbours in k, as
// {upper first, lower first, upper second, lower second}.
using FragmentA = uint32_t[4];

// As stored: four neighbours of a row to a fragment.
template <typename T>
struct NativeWeights {
  static constexpr int kPieceWeights = 8;
  static constexpr bool kHasGroups = false;  // scales within a row
  static constexpr int bytes_of(int weights) { return weights * int(sizeof(T)); }
  __device__ static const std::byte* codes(const StoredMatrix& m, std::size_t n) {
    return m.weight + n * m.k * sizeof(T);
  }

  struct Row {
    const T* weights = nullptr;
  };
  struct Piece {
    uint4 bits = {};
  };

  __device__ static Row row(const StoredMatrix& m, std::size_t n) {
    return {reinterpret_cast<const T*>(m.weight) + n * m.k};
  }
  // It stays, and load() goes by `at`: the loads then come between the products, where they belong,
  // and there are instructions enough to spare.
  __device__ static Row moved_on(const Row& row, std::uint32_t) { return row; }
  template <bool kWholeRounds>
  __device__ static Piece load(const Row& row, int, int at, int k) {
    return {at < k ? load_weights(row.weights + at) : uint4{}};
  }
  // Calls f(i, fragment) for each four of the piece's weights.
  template <typename F>
  __device__ static void for_fragments(const Piece& upper, const Piece& lower, const F& f) {
#pragma unroll
    for (int i = 0; i < kPieceWeights / 4; ++i)
      f(i, FragmentA{word_of(upper.bits, 2 * i), word_of(lower.bits, 2 * i),
                     word_of(upper.bits, 2 * i + 1), word_of(lower.bits, 2 * i + 1)});
  }
  // Puts the activations of four neighbours into the order of a fragment.
  __device__ static void order(uint32_t (&)[2]) {}
  // Puts eight activations in the range in which they are multiplied.
  __device__ static void prepare(uint4&) {}
  // The sum of a whole row of products.
  __device__ static float scaled(const StoredMatrix&, std::uint32_t, float sum) { return sum; }
};

// Bytes 0 and 2 of a word are one pair, 1 and 3 the other.
template <typename T>
struct Int8Weights {
  static constexpr int kPieceWeights = 16;
  static constexpr bool kHasGroups = false;
  static constexpr int bytes_of(int weights) { return weights; }
  __device__ static const std::byte* codes(const StoredMatrix& m, std::size_t n) {
    return m.weight + n * code_row_bytes(Encoding::int8, m.k);
  }

  struct Row {
    const std::byte* codes = nullptr;
  };
  struct Piece {
    uint4 bits = {};
  };

  __device__ static Row row(const StoredMatrix& m, std::size_t n) {
    return {m.weight + n * code_row_bytes(Encoding::int8, m.k)};
  }
  __device__ static Row moved_on(const Row& row, std::uint32_t by) { return {row.codes + by}; }
  template <bool kWholeRounds>
  __device__ static Piece load(const Row& row, int distance, int at, int k) {
    return {kWholeRounds || at < k ? load_weights(row.codes + distance) : uint4{}};
  }
  // The codes in the lower bytes of the halves of `word`.
  __device__ static uint32_t pair(uint32_t word) {
    if constexpr (std::is_same_v<T, __half>) {
      // 1024 + 128 + code
      return minus((word & 0x00ff00ffu) ^ 0x64806480u, 0x64806480u, T{});
    } else {
      // 128 + the lower seven bits, less 128, or 256 where the code is negative.
      return minus(masked_or<0x007f007fu>(word, 0x43004300u),
                   masked_or<0x00800080u>(word, 0x43004300u), T{});
    }
  }
  template <typename F>
  __device__ static void for_fragments(const Piece& upper, const Piece& lower, const F& f) {
#pragma unroll
    for (int i = 0; i < kPieceWeights / 4; ++i) {
      const uint32_t up = word_of(upper.bits, i), low = word_of(lower.bits, i);
      f(i, FragmentA{pair(up), pair(low), pair(up >> 8), pair(low >> 8)});
    }
  }
  __device__ static void order(uint32_t (&b)[2]) {
    const uint32_t first = __byte_perm(b[0], b[1], 0x5410);
    b[1] = __byte_perm(b[0], b[1], 0x7632);
    b[0] = first;
  }
  __device__ static void prepare(uint4&) {}
  __device__ static float scaled(const StoredMatrix& m, std::uint32_t n, float sum) {
    return sum * reinterpret_cast<const float*>(m.scales)[n];
  }
};

// Nibbles lie in kNibbleOrder, so that neighbours are 16 bits apart. The four pieces that the lanes of
// a row read at a time are one group.
template <typename T>
struct Int4Weights {
  static constexpr int kPieceWeights = 32;
  static constexpr bool kHasGroups = true;
  static constexpr int bytes_of(int weights) { return weights / 2; }
  __device__ static const std::byte* codes(const StoredMatrix& m, std::size_t n) {
    return m.weight + n * code_row_bytes(Encoding::int4, m.k);
  }
  __device__ static const std::byte* groups(const StoredMatrix& m, std::size_t n) {
    return m.scales + n * scale_row_bytes(Encoding::int4, m.k);
  }
  static_assert(4 * kPieceWeights == kGroupWeights);

  struct Row {
    const std::byte* codes = nullptr;
    const uint32_t* groups = nullptr;  // GroupScale
  };
  struct Piece {
    uint4 bits = {};
    uint32_t group = 0;
  };

  __device__ static Row row(const StoredMatrix& m, std::size_t n) {
    return {m.weight + n * code_row_bytes(Encoding::int4, m.k),
            reinterpret_cast<const uint32_t*>(m.scales + n * scale_row_bytes(Encoding::int4, m.k))};
  }
  __device__ static Row moved_on(const Row& row, std::uint32_t by) {
    return {row.codes + by / 2, row.groups + by / std::uint32_t(kGroupWeights)};
  }
  // Every lane of a row has the group's scale, also one whose piece lies behind the row's end: it
  // scales sums that the others' pieces have gone into.
  template <bool kWholeRounds>
  __device__ static Piece load(const Row& row, int distance, int at, int k) {
    const bool in_row = kWholeRounds || at < k;
    const bool group_in_row = kWholeRounds || at / int(kGroupWeights) * int(kGroupWeights) < k;
    return {in_row ? load_weights(row.codes + distance / 2) : uint4{},
            group_in_row ? __ldg(row.groups + distance / int(kGroupWeights)) : 0};
  }
  __device__ static float scale(const Piece& piece) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(piece.group)));
  }
  // A code comes as kBase + code: in bf16 in the last four places of the mantissa of 128, in f16 in the
  // first four of 16's, where less is lost in sums of them.
  static constexpr bool kIsHalf = std::is_same_v<T, __half>;
  static constexpr float kBase = kIsHalf ? 16.0f : 128.0f;
  static constexpr uint32_t kBaseBits = kIsHalf ? 0x4c004c00u : 0x43004300u;
  static constexpr int kPlace = kIsHalf ? 6 : 0;
  // What has to be taken from each: that and the zero point.
  __device__ static float surplus(const Piece& piece) {
    return kBase + __half2float(__ushort_as_half(static_cast<unsigned short>(piece.group >> 16)));
  }
  // Nibbles n and n + 4 of a word.
  __device__ static uint32_t pair(uint32_t word, int n) {
    const int left = kPlace - 4 * n;
    return masked_or<0x000f000fu << kPlace>(left > 0 ? word << left : word >> -left, kBaseBits);
  }
  template <typename F>
  __device__ static void for_fragments(const Piece& upper, const Piece& lower, const F& f) {
#pragma unroll
    for (int i = 0; i < kPieceWeights / 4; ++i) {
      const uint32_t up = word_of(upper.bits, i / 2), low = word_of(lower.bits, i / 2);
      const int n = i % 2 * 2;
      f(i, FragmentA{pair(up, n), pair(low, n), pair(up, n + 1), pair(low, n + 1)});
    }
  }
  __device__ static void order(uint32_t (&)[2]) {}
  __device__ static float scaled(const StoredMatrix&, std::uint32_t, float sum) { return sum; }
};

// Codes that are the bits of numbers as they are, multiples of the least one that T has: below twice the
// least normal number all are equally far apart. So a fragment of bf16 takes one instruction where both
// nibbles of a byte are in their places, the upper ones 16 times as large, and nothing but the zero point
// has to be taken away.
//
// What is multiplied with such numbers has to be large, or a product would be less than f32 has: prepare()
// takes bf16 times 2^64, and 2^60 beside upper nibbles, and scaled() takes that from a sum. Activations may
// be from 2^-57, below which f32 loses places, to 2^63, whose square it does not have. f16 has no such room,
// and needs none: its least number is 2^-24.
template <typename T>
struct Int4Subnormals : Int4Weights<T> {
  using typename Int4Weights<T>::Piece;
  using Int4Weights<T>::kIsHalf;

  __device__ static float zero(const Piece& piece) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(piece.group >> 16)));
  }
  // A fragment of ones.
  static constexpr uint32_t kLowerOnes = 0x00010001u;
  static constexpr uint32_t kUpperOnes = kIsHalf ? 0x00010001u : 0x00100010u;

  // Nibbles n and n + 4 of a word.
  __device__ static uint32_t pair(uint32_t word, int n) {
    if constexpr (kIsHalf)
      return word >> 4 * n & 0x000f000fu;
    else
      return word >> n / 2 * 8 & (n % 2 == 0 ? 0x000f000fu : 0x00f000f0u);
  }
  template <typename F>
  __device__ static void for_fragments(const Piece& upper, const Piece& lower, const F& f) {
#pragma unroll
    for (int i = 0; i < Int4Weights<T>::kPieceWeights / 4; ++i) {
      const uint32_t up = word_of(upper.bits, i / 2), low = word_of(lower.bits, i / 2);
      const int n = i % 2 * 2;
      f(i, FragmentA{pair(up, n), pair(low, n), pair(up, n + 1), pair(low, n + 1)});
    }
  }
  __device__ static void prepare(uint4& eight) {
    if constexpr (!kIsHalf) {
      constexpr uint32_t kBesideLower = 0x5f805f80u, kBesideUpper = 0x5d805d80u;
      eight.x = times(eight.x, kBesideLower);
      eight.y = times(eight.y, kBesideUpper);
      eight.z = times(eight.z, kBesideLower);
      eight.w = times(eight.w, kBesideUpper);
    }
  }
  __device__ static float scaled(const StoredMatrix&, std::uint32_t, float sum) {
    return sum * (kIsHalf ? 0x1p24f : 0x1p69f);
  }

 private:
  __device__ static uint32_t times(uint32_t a, uint32_t b) {
    const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                           *reinterpret_cast<const __nv_bfloat162*>(&b));
    return *reinterpret_cast<const uint32_t*>(&product);
  }
};

}  // namespace sluice
