// What moves: units of weights, their sizes, and the model as a policy sees it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// Units are numbered 0..n-1 in the order in which one token walks them: the embedding, then each
// layer's attention and mlp or experts, then the head.
using UnitId = std::uint32_t;
inline constexpr UnitId kNoUnit = ~UnitId{0};

// How weights are stored. `native` is the model's own type; docs/quantisation.md has the others.
enum class Encoding : std::uint8_t { native, int8, int4 };
inline constexpr std::size_t kEncodings = 3;

// The smallest set of weights that moves. A dense layer is an `attention` and an `mlp`; a layer of
// experts is an `attention` (with the router) and one `expert` each. The embedding stays on the
// host (only rows are read); the head is kept on the device for good.
enum class UnitKind : std::uint8_t { attention, mlp, expert, embedding, head };
inline constexpr std::size_t kUnitKinds = 5;

constexpr std::string_view name_of(UnitKind kind) {
  constexpr std::array<std::string_view, kUnitKinds> names{"attention", "mlp", "expert",
                                                           "embedding", "head"};
  return names[static_cast<std::size_t>(kind)];
}

constexpr std::string_view name_of(Encoding encoding) {
  constexpr std::array<std::string_view, kEncodings> names{"native", "int8", "int4"};
  return names[static_cast<std::size_t>(encoding)];
}

// True for the kinds that an offload policy moves.
constexpr bool is_streamed(UnitKind kind) {
  return kind == UnitKind::attention || kind == UnitKind::mlp || kind == UnitKind::expert;
}

struct UnitInfo {
  UnitId id = kNoUnit;
  UnitKind kind = UnitKind::attention;
  std::int32_t layer = 0;    // of the embedding: 0; of the head: the number of layers
  std::int32_t expert = -1;  // -1 unless `kind` is expert
  // Of the unit's one slab, by Encoding; 0: not stored in that encoding.
  std::array<std::uint64_t, kEncodings> bytes{};

  constexpr std::uint64_t size(Encoding e) const { return bytes[static_cast<std::size_t>(e)]; }
};

// How a unit crosses the link (`wire`) and how it sits in its slot (`resident`), where kernels read
// it. The two are the same, or `resident` is native: then the engine dequantises beside the copies.
// Anything else is refused before the run, as is what UnitInfo::bytes has no size of.
struct Transfer {
  Encoding wire = Encoding::native;
  Encoding resident = Encoding::native;

  friend constexpr bool operator==(const Transfer&, const Transfer&) = default;
};

// One number per kind of unit.
template <typename T>
class PerKind {
 public:
  constexpr T& operator[](UnitKind kind) { return values_[static_cast<std::size_t>(kind)]; }
  constexpr const T& operator[](UnitKind kind) const {
    return values_[static_cast<std::size_t>(kind)];
  }
  friend constexpr bool operator==(const PerKind&, const PerKind&) = default;

 private:
  std::array<T, kUnitKinds> values_{};
};

// What the spans refer to outlives every policy of the run: the view may be copied and kept.
struct ModelView {
  std::span<const UnitInfo> units;  // index: UnitId
  std::span<const UnitId> order;    // one token's walk over the streamed units; each expert once
  std::int32_t layers = 0;
  std::int32_t experts_per_layer = 0;  // 0: dense
  std::int32_t experts_per_token = 0;  // of those, how many the router chooses
};

}  // namespace sluice
