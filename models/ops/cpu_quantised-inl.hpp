// Rows of codes (core/weights/encoding.hpp) as the tiles read them: converted in the registers.
//
// int8: a code is an element like any other; the row's scale is applied to the finished sum.
// int4: a block is a vector of words, that is eight vectors of weights: vector i has nibble i of
// each word. A weight is scale * (code - zero), which f32 holds exactly: 11 bits of the scale, 5 of
// the difference.
#if defined(SLUICE_CPU_QUANTISED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_QUANTISED_INL
#undef SLUICE_CPU_QUANTISED_INL
#else
#define SLUICE_CPU_QUANTISED_INL
#endif

#include "core/weights/encoding.hpp"
#include "models/ops/cpu_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// Here rather than beside Bf16: the tiles find the functions below by the type's namespace.
struct Int8 {
  std::int8_t code;
};

HWY_INLINE V widen(const Int8* from) {
  using DI8 = hn::Rebind<std::int8_t, D>;
  return hn::ConvertTo(D(), hn::PromoteTo(DI32(), hn::LoadU(DI8(), &from->code)));
}

struct Int4Row {
  const std::byte* codes;
  const GroupScale* scales;

  // Of whole words; the scale is that of the group in which it begins.
  HWY_INLINE Int4Row operator+(std::size_t weights) const {
    return {codes + weights / 2, scales + weights / kGroupWeights};
  }
};

// Whether one table of sixteen floats is one vector, chosen from by the lowest four bits of a lane.
#undef SLUICE_CPU_TABLE16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define SLUICE_CPU_TABLE16 1
#else
#define SLUICE_CPU_TABLE16 0
#endif

class Int4Block {
 public:
  Int4Block() = default;
  HWY_INLINE explicit Int4Block(Int4Row row) {
    const hn::RepartitionToWide<DU16> pairs;
    words_ = hn::LoadU(DU32(), reinterpret_cast<const std::uint32_t*>(row.codes));
    std::uint32_t both;
    std::memcpy(&both, row.scales, sizeof(both));
    const V scale_zero = widen_halves(hn::BitCast(DU16(), hn::Set(pairs, both)));
    const V scale = hn::DupEven(scale_zero), zero = hn::DupOdd(scale_zero);
#if SLUICE_CPU_TABLE16
    table_ = hn::Mul(scale, hn::Sub(hn::Iota(D(), 0), zero));
#else
    scale_ = scale;
    offset_ = hn::Neg(hn::Mul(scale, zero));
#endif
  }

  HWY_INLINE V next() {
#if SLUICE_CPU_TABLE16
    const V weights{_mm512_permutexvar_ps(words_.raw, table_.raw)};
#else
    const VU32 codes = hn::And(words_, hn::Set(DU32(), kInt4Most));
    const V weights = hn::MulAdd(hn::ConvertTo(D(), hn::BitCast(DI32(), codes)), scale_, offset_);
#endif
    words_ = hn::ShiftRight<4>(words_);
    return weights;
  }

 private:
  VU32 words_;
#if SLUICE_CPU_TABLE16
  V table_;
#else
  V scale_, offset_;
#endif
};

HWY_INLINE Int4Block open_block(Int4Row row) { return Int4Block(row); }

template <>
struct RowFormat<Int4Row> {
  static constexpr std::size_t kVectors = kNibbleOrder.size();
  static constexpr std::size_t kBlockBytes = kLanes * sizeof(std::uint32_t);
  static_assert(kGroupWeights % (kVectors * kLanes) == 0, "a block has one scale");

  static const void* address(Int4Row row) { return row.codes; }

  template <class T>
  static HWY_INLINE void pack(const T* from, std::size_t k, float* to) {
    constexpr std::size_t kWeights = kVectors * kLanes;
    for (std::size_t i = 0; i < k; i += kWeights) {
      float block[kWeights] = {};
      for (std::size_t at = 0; at < kWeights && i + at < k; at += kLanes)
        hn::StoreU(widen_some(from + i + at, k - i - at), D(), block + at);
      for (std::size_t v = 0; v < kVectors; ++v) {
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          to[i + v * kLanes + lane] = block[lane * kVectors + kNibbleOrder[v]];
      }
    }
  }

  // Rows end at a multiple of kRowAlignment, which may be within a vector.
  struct Rest {
    std::uint32_t words[kLanes];

    HWY_INLINE Int4Row copy(Int4Row from, std::size_t left) {
      if constexpr (kBlockBytes == kRowAlignment) return from;
      const std::size_t count = code_row_bytes(Encoding::int4, left) / sizeof(std::uint32_t);
      const auto* codes = reinterpret_cast<const std::uint32_t*>(from.codes);
      hn::StoreU(hn::MaskedLoad(hn::FirstN(DU32(), count), DU32(), codes), DU32(), words);
      return {reinterpret_cast<const std::byte*>(words), from.scales};
    }
  };
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
