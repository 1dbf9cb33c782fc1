// Dot products of several rows of weights with several rows of activations at once.
//
// The order of the sum, which fixes the bits: the inner dimension is padded with zeros to blocks of
// 2 * kLanes elements, each block is two vectors (of f32 and f16 the lower and the upper half, of
// bf16 the even and the odd elements), and these are added block by block, first vector first, into
// one accumulator of kLanes lanes by fused multiply-add (by multiply and add where the processor has
// none). Then the lanes are added: within each four, first and third, second and fourth, then the
// two; then the upper half of the vector to the lower until one number is left. However many rows
// are computed at once, and however the inner dimension is cut into blocks, it is this sum.
#if defined(SLUICE_CPU_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_TILE_INL
#undef SLUICE_CPU_TILE_INL
#else
#define SLUICE_CPU_TILE_INL
#endif

#include <hwy/cache_control.h>

#include "models/ops/cpu_vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

inline constexpr std::size_t kBlock = 2 * kLanes;

// Rows of weights of a tile, and activations: as many accumulators as the registers hold.
inline constexpr std::size_t kTileRows = 4;
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
inline constexpr std::size_t kTileTokens = 6;
#else
inline constexpr std::size_t kTileTokens = 3;
#endif

constexpr std::size_t padded_to_block(std::size_t k) { return (k + kBlock - 1) / kBlock * kBlock; }

// One block as the two vectors that the order above names.
template <class T>
HWY_INLINE void widen_block(const T* from, V& first, V& second) {
  first = widen(from);
  second = widen(from + kLanes);
}

HWY_INLINE void widen_block(const Bf16* from, V& first, V& second) {
  const DU32 du;
  VU32 both;
  static_assert(sizeof(Bf16) * kBlock == sizeof(std::uint32_t) * kLanes);
  both = hn::BitCast(du, hn::LoadU(hn::ScalableTag<std::uint16_t>(), &from->bits));
  first = float_of(hn::ShiftLeft<16>(both));  // little-endian: the even element is the lower half
  second = float_of(hn::And(both, hn::Set(du, 0xffff0000)));
}

// The same of a row that may end after `left` elements: zeros follow.
template <class T>
HWY_INLINE void widen_some_block(const T* from, std::size_t left, V& first, V& second) {
  if (HWY_LIKELY(left >= kBlock)) return widen_block(from, first, second);
  T padded[kBlock] = {};
  std::memcpy(padded, from, left * sizeof(T));
  widen_block(padded, first, second);
}

// Rearranges a block of f32 in its own order as widen_block would give it for type W.
template <class W>
HWY_INLINE void order_block(V&, V&) {}
template <>
HWY_INLINE void order_block<Bf16>(V& first, V& second) {
  const V even = hn::ConcatEven(D(), second, first);
  second = hn::ConcatOdd(D(), second, first);
  first = even;
}
// And back.
template <class W>
HWY_INLINE void restore_block(V&, V&) {}
template <>
HWY_INLINE void restore_block<Bf16>(V& first, V& second) {
  float ordered[kBlock];
  hn::StoreInterleaved2(first, second, D(), ordered);
  first = hn::LoadU(D(), ordered);
  second = hn::LoadU(D(), ordered + kLanes);
}

// `k` elements as f32 in blocks of W's order, padded with zeros to a whole block.
template <class W, class T>
HWY_INLINE void pack(const T* from, std::size_t k, float* to) {
  for (std::size_t i = 0; i < k; i += kBlock) {
    const std::size_t left = k - i;
    V first = widen_some(from + i, left);
    V second = left > kLanes ? widen_some(from + i + kLanes, left - kLanes) : hn::Zero(D());
    order_block<W>(first, second);
    hn::StoreU(first, D(), to + i);
    hn::StoreU(second, D(), to + i + kLanes);
  }
}

// The vectors of a block one after the other.
template <class W>
struct InOrder {
  const W* from;

  HWY_INLINE V next() {
    const V vector = widen(from);
    from += kLanes;
    return vector;
  }
};
// A word of two is loaded again for its second element: it is one instruction with the mask.
struct EvenThenOdd {
  const Bf16* from;
  bool odd;

  HWY_INLINE V next() {
    V first, second;
    widen_block(from, first, second);
    if (odd) return second;
    odd = true;
    return first;
  }
};

template <class W>
HWY_INLINE InOrder<W> open_block(const W* from) {
  return {from};
}
HWY_INLINE EvenThenOdd open_block(const Bf16* from) { return {from, false}; }

// What the tiles must know of a kind of rows beside open_block(). A Row is what finds a row's
// elements: a pointer, where nothing but them is needed. Row + n is the row from its element n on.
template <class Row>
struct RowFormat;

template <class W>
struct RowFormat<const W*> {
  static constexpr std::size_t kVectors = 2;  // of a block
  static constexpr std::size_t kBlockBytes = kBlock * sizeof(W);

  // Where a row lies.
  static const void* address(const W* row) { return row; }

  template <class T>
  static HWY_INLINE void pack(const T* from, std::size_t k, float* to) {
    cpu::HWY_NAMESPACE::pack<W>(from, k, to);
  }

  // A copy of the `left` elements with which a row ends within a block; zeros follow.
  struct Rest {
    W values[kBlock] = {};

    HWY_INLINE const W* copy(const W* from, std::size_t left) {
      std::memcpy(values, from, left * sizeof(W));
      return values;
    }
  };
};

template <class Row>
inline constexpr std::size_t kBlockOf = RowFormat<Row>::kVectors* kLanes;

template <class Row>
constexpr std::size_t padded_to_block_of(std::size_t k) {
  return (k + kBlockOf<Row> - 1) / kBlockOf<Row> * kBlockOf<Row>;
}

// `k` elements of a row as pack() leaves them, at the full rate.
template <class Row>
HWY_INLINE void widen_row(Row from, std::size_t k, float* to) {
  const auto widen_one = [to](Row block_of, std::size_t at) HWY_ATTR {
    auto block = open_block(block_of);
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < RowFormat<Row>::kVectors; ++v)
      hn::StoreU(block.next(), D(), to + at + v * kLanes);
  };
  std::size_t i = 0;
  for (; i + kBlockOf<Row> <= k; i += kBlockOf<Row>) widen_one(from + i, i);
  if (i < k) {
    typename RowFormat<Row>::Rest rest;
    widen_one(rest.copy(from + i, k - i), i);
  }
}

template <std::size_t R, std::size_t T>
struct Sums {
  V of[R][T];
};

template <std::size_t R, std::size_t T>
HWY_INLINE void clear(Sums<R, T>& sums) {
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < R; ++r) {
    HWY_UNROLL(8)
    for (std::size_t t = 0; t < T; ++t) sums.of[r][t] = hn::Zero(D());
  }
}

template <std::size_t R, std::size_t T, class Row>
HWY_INLINE void add_block(const Row (&w)[R], std::size_t at, const float* x, std::size_t x_stride,
                          Sums<R, T>& sums) {
  constexpr std::size_t kVectors = RowFormat<Row>::kVectors;
  decltype(open_block(w[0])) blocks[R];
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < R; ++r) blocks[r] = open_block(w[r] + at);
  // A vector at a time, which needs few registers.
  HWY_UNROLL(8)
  for (std::size_t v = 0; v < kVectors; ++v) {
    V activations[T];
    HWY_UNROLL(8)
    for (std::size_t t = 0; t < T; ++t)
      activations[t] = hn::LoadU(D(), x + t * x_stride + v * kLanes);
    HWY_UNROLL(8)
    for (std::size_t r = 0; r < R; ++r) {
      const V weight = blocks[r].next();
      HWY_UNROLL(8)
      for (std::size_t t = 0; t < T; ++t)
        sums.of[r][t] = hn::MulAdd(weight, activations[t], sums.of[r][t]);
    }
  }
}

// What is fetched of the weights ahead of being worked on: nothing, as the processor follows long rows by
// itself; the rows behind the R, in the order in which they lie; or, where each row is the place in a
// stream of its own, what follows it there.
enum class Fetch { nothing, rows_behind, streams };
constexpr std::size_t kFetchDistance = 2048;  // bytes, in a stream

// Adds k products of each of R rows of weights with each of T rows of packed activations.
template <Fetch kFetch = Fetch::nothing, std::size_t R, std::size_t T, class Row>
HWY_INLINE void add_products(const Row (&w)[R], std::size_t k, const float* x, std::size_t x_stride,
                             Sums<R, T>& sums) {
  using Format = RowFormat<Row>;
  constexpr std::size_t kLine = 64;
  [[maybe_unused]] const auto* next = static_cast<const char*>(Format::address(w[R - 1] + k));
  std::size_t i = 0;
  for (; i + kBlockOf<Row> <= k; i += kBlockOf<Row>) {
    if constexpr (kFetch == Fetch::rows_behind) {
      HWY_UNROLL(8)
      for (std::size_t at = 0; at < R * Format::kBlockBytes; at += kLine) hwy::Prefetch(next + at);
      next += R * Format::kBlockBytes;
    }
    if constexpr (kFetch == Fetch::streams) {
      HWY_UNROLL(8)
      for (std::size_t r = 0; r < R; ++r) {
        const auto* place = static_cast<const char*>(Format::address(w[r] + i)) + kFetchDistance;
        HWY_UNROLL(8)
        for (std::size_t at = 0; at < Format::kBlockBytes; at += kLine) hwy::Prefetch(place + at);
      }
    }
    add_block(w, i, x + i, x_stride, sums);
  }
  if (HWY_UNLIKELY(i < k)) {
    typename Format::Rest rest[R];
    Row rows[R];
    for (std::size_t r = 0; r < R; ++r) rows[r] = rest[r].copy(w[r] + i, k - i);
    add_block(rows, 0, x + i, x_stride, sums);
  }
}

// The halves of a vector added until four lanes are left.
template <class DV>
HWY_INLINE auto folded(DV, hn::Vec<DV> v) {
  if constexpr (hn::MaxLanes(DV()) == 4) {
    return v;
  } else {
    const hn::Half<DV> half;
    return folded(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The lanes of four accumulators added, to four numbers.
HWY_INLINE void sum_lanes(V a, V b, V c, V e, float* to) {
  const D d;
  const V ac = hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));
  const V be = hn::Add(hn::InterleaveLower(d, b, e), hn::InterleaveUpper(d, b, e));
  const V all = hn::Add(hn::InterleaveLower(d, ac, be), hn::InterleaveUpper(d, ac, be));
  hn::StoreU(folded(d, all), hn::CappedTag<float, 4>(), to);
}

// The sums of token t with each of the R rows, and what R lacks to a multiple of four as padding.
template <std::size_t R, std::size_t T>
HWY_INLINE void sum_lanes(const Sums<R, T>& sums, std::size_t t, float* to) {
  const V none = hn::Zero(D());
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < R; r += 4) {
    const V a = sums.of[r][t];
    const V b = r + 1 < R ? sums.of[HWY_MIN(r + 1, R - 1)][t] : none;
    const V c = r + 2 < R ? sums.of[HWY_MIN(r + 2, R - 1)][t] : none;
    const V e = r + 3 < R ? sums.of[HWY_MIN(r + 3, R - 1)][t] : none;
    sum_lanes(a, b, c, e, to + r);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
