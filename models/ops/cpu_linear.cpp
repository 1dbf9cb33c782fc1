#include "models/ops/cpu_targets.hpp"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/ops/cpu_linear.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <type_traits>

#include "core/parallel.hpp"
#include "models/ops/cpu_kernels.hpp"
#include "models/ops/cpu_quantised-inl.hpp"
#include "models/ops/cpu_scratch.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// Up to this many tokens, weights are converted in the registers for each tile; for more, once per
// panel.
constexpr std::size_t kDirectTokens = 2 * kTileTokens;
// Rows of weights of a task of the direct way.
constexpr std::size_t kDirectRows = 32;

// The processor's own prefetching follows a few long streams well, many short ones badly. So rows of up
// to this many bytes are read as a few streams of rows that follow each other, fetched ahead. Measured on a
// Xeon at 576 columns of bf16: 28 to 31 GB/s, with rows one by one 17.6, where a plain read pass has 20 to 22.
// int4 is bound by what its codes take to be worked on, not by reading: there neighbours are better.
constexpr std::size_t kShortRowBytes = kLanes >= 16 ? 6144 : 4096;
constexpr std::size_t kShortRows = 4;
constexpr std::size_t kLongRows = 8;

// A panel is this many rows of weights by this much of the inner dimension: 64 KiB in f32, beside a
// tile's tokens by as much (12 KiB) in the first cache.
constexpr std::size_t kPanelRows = 32;
constexpr std::size_t kPanelDepth = 512;
// Tokens that share a converted panel. Their accumulators take 192 KiB of the second cache at most.
constexpr std::size_t kTokenBlock = 96;
static_assert(kTokenBlock % kTileTokens == 0 && kPanelDepth % kGroupWeights == 0);

template <class Row>
HWY_INLINE std::size_t row_bytes(const LinearArgs& args) {
  if constexpr (std::is_same_v<Row, Int4Row>) {
    return code_row_bytes(Encoding::int4, args.k);
  } else if constexpr (std::is_same_v<Row, const Int8*>) {
    return code_row_bytes(Encoding::int8, args.k);
  } else {
    return args.k * sizeof(std::remove_pointer_t<Row>);
  }
}

// Row `index` of the weights; past the last one, the last.
template <class Row>
HWY_INLINE Row row_of(const LinearArgs& args, std::size_t index) {
  const std::size_t row = HWY_MIN(index, std::size_t{args.n} - 1);
  const std::byte* codes = args.weight + row * row_bytes<Row>(args);
  if constexpr (std::is_same_v<Row, Int4Row>) {
    const std::byte* scales = args.scales + row * scale_row_bytes(Encoding::int4, args.k);
    return {codes, reinterpret_cast<const GroupScale*>(scales)};
  } else {
    return reinterpret_cast<Row>(codes);
  }
}

template <class Row>
HWY_INLINE void pack_row(const LinearArgs& args, std::size_t row, std::size_t from, std::size_t k,
                         float* to) {
  const std::size_t at = row * args.k + from;
  switch (args.type) {
    case DType::f32: return RowFormat<Row>::pack(static_cast<const float*>(args.x) + at, k, to);
    case DType::bf16: return RowFormat<Row>::pack(static_cast<const Bf16*>(args.x) + at, k, to);
    case DType::f16: return RowFormat<Row>::pack(static_cast<const F16*>(args.x) + at, k, to);
  }
}

HWY_INLINE V widen_bias(const LinearArgs& args, std::size_t at, std::size_t count) {
  switch (args.bias_type) {
    case DType::f32: return widen_some(reinterpret_cast<const float*>(args.bias) + at, count);
    case DType::bf16: return widen_some(reinterpret_cast<const Bf16*>(args.bias) + at, count);
    case DType::f16: return widen_some(reinterpret_cast<const F16*>(args.bias) + at, count);
  }
  return hn::Zero(D());
}

// A row's scale, bias, residual and rounding of `count` sums of one token.
template <class T>
HWY_INLINE void finish(const LinearArgs& args, std::size_t row, std::size_t column,
                       std::size_t count, const float* sums) {
  const std::size_t at = row * args.n + column;
  T* to = static_cast<T*>(args.residual ? args.residual : args.out) + at;
  const auto* scales = reinterpret_cast<const float*>(args.scales);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i;
    V y = widen_some(sums + i, left);
    if (args.encoding == Encoding::int8) y = hn::Mul(y, widen_some(scales + column + i, left));
    if (args.bias) y = hn::Add(y, widen_bias(args, column + i, left));
    if (args.residual) y = hn::Add(widen_some(to + i, left), rounded<T>(y));
    narrow_some(y, to + i, left);
  }
}

HWY_INLINE void finish(const LinearArgs& args, std::size_t row, std::size_t column,
                       std::size_t count, const float* sums) {
  switch (args.type) {
    case DType::f32: return finish<float>(args, row, column, count, sums);
    case DType::bf16: return finish<Bf16>(args, row, column, count, sums);
    case DType::f16: return finish<F16>(args, row, column, count, sums);
  }
}

// ---- few tokens: the weights are read once, straight from where they lie

// R rows of weights from `row` on, `step` apart.
template <std::size_t R, std::size_t T, Fetch kFetch, class Row>
HWY_INLINE void direct_tile(const LinearArgs& args, std::size_t row, std::size_t step,
                            const float* x, std::size_t x_stride, float* results) {
  Row w[R];
  for (std::size_t r = 0; r < R; ++r) w[r] = row_of<Row>(args, row + r * step);
  Sums<R, T> sums;
  clear(sums);
  add_products<kFetch>(w, args.k, x, x_stride, sums);
  float padded[(R + 3) / 4 * 4];
  for (std::size_t t = 0; t < T; ++t) {
    sum_lanes(sums, t, padded);
    for (std::size_t r = 0; r < R; ++r) results[t * kDirectRows + r * step] = padded[r];
  }
}

template <std::size_t R, std::size_t T, Fetch kFetch, class Row>
void neighbours(const LinearArgs& args, std::size_t row, std::size_t count, const float* x,
                std::size_t x_stride, float* results) {
  for (std::size_t r = 0; r < count; r += R) {
    direct_tile<R, T, kFetch, Row>(args, row + r, 1, x, x_stride, results + r);
  }
}

template <std::size_t R, class Row>
void streams(const LinearArgs& args, std::size_t row, std::size_t count, const float* x,
             float* results) {
  static_assert(kDirectRows % R == 0);
  const std::size_t step = (count + R - 1) / R;
  for (std::size_t r = 0; r < step; ++r) {
    direct_tile<R, 1, Fetch::streams, Row>(args, row + r, step, x, 0, results + r);
  }
}

template <class Row>
void one_token(const LinearArgs& args, std::size_t row, std::size_t count, const float* x,
               float* results) {
  if (row_bytes<Row>(args) > kShortRowBytes)
    neighbours<kLongRows, 1, Fetch::nothing, Row>(args, row, count, x, 0, results);
  else if constexpr (std::is_same_v<Row, Int4Row>)
    neighbours<kShortRows, 1, Fetch::rows_behind, Row>(args, row, count, x, 0, results);
  else
    streams<kShortRows, Row>(args, row, count, x, results);
}

template <std::size_t T, class Row>
void some_tokens(const LinearArgs& args, std::size_t row, std::size_t count, const float* x,
                 std::size_t x_stride, float* results) {
  neighbours<kTileRows, T, Fetch::rows_behind, Row>(args, row, count, x, x_stride, results);
}

template <class Row>
void direct_task(const LinearArgs& args, std::size_t row, std::size_t count, std::size_t tokens,
                 const float* x, std::size_t x_stride, float* results) {
  constexpr std::size_t kMost = kTileTokens;
  switch (tokens) {
    case 1: return one_token<Row>(args, row, count, x, results);
    case 2: return some_tokens<2, Row>(args, row, count, x, x_stride, results);
    case 3: return some_tokens<3, Row>(args, row, count, x, x_stride, results);
    case 4: return some_tokens<HWY_MIN(4, kMost), Row>(args, row, count, x, x_stride, results);
    case 5: return some_tokens<HWY_MIN(5, kMost), Row>(args, row, count, x, x_stride, results);
    default: return some_tokens<kMost, Row>(args, row, count, x, x_stride, results);
  }
}

template <class Row>
void linear_direct(const LinearArgs& args) {
  const std::size_t stride = padded_to_block_of<Row>(args.k);
  float* x = scratch(Scratch::packed_rows, args.rows * stride);
  for (std::size_t t = 0; t < args.rows; ++t) pack_row<Row>(args, t, 0, args.k, x + t * stride);

  const std::size_t n = args.n;
  parallel_for((n + kDirectRows - 1) / kDirectRows, [&](std::size_t task) HWY_ATTR {
    float results[kDirectTokens * kDirectRows];
    const std::size_t begin = task * kDirectRows;
    const std::size_t count = HWY_MIN(kDirectRows, n - begin);
    for (std::size_t t = 0; t < args.rows; t += kTileTokens) {
      direct_task<Row>(args, begin, count, HWY_MIN(kTileTokens, args.rows - t), x + t * stride,
                       stride, results + t * kDirectRows);
    }
    for (std::size_t t = 0; t < args.rows; ++t) {
      finish(args, t, begin, count, results + t * kDirectRows);
    }
  });
}

// ---- many tokens: panels of weights are converted once for a block of tokens

// The tile's accumulators rest in `kept` between the parts of the inner dimension.
HWY_INLINE void panel_tile(const float* panel, std::size_t depth, const float* x, bool first,
                           bool last, float* kept, float* results) {
  constexpr std::size_t R = kTileRows, T = kTileTokens;
  const float* w[R];
  for (std::size_t r = 0; r < R; ++r) w[r] = panel + r * kPanelDepth;
  Sums<R, T> sums;
  if (first) {
    clear(sums);
  } else {
    HWY_UNROLL(8)
    for (std::size_t r = 0; r < R; ++r) {
      HWY_UNROLL(8)
      for (std::size_t t = 0; t < T; ++t) {
        sums.of[r][t] = hn::LoadU(D(), kept + (r * T + t) * kLanes);
      }
    }
  }
  add_products(w, depth, x, kPanelDepth, sums);
  if (last) {
    HWY_UNROLL(8)
    for (std::size_t t = 0; t < T; ++t) sum_lanes(sums, t, results + t * kPanelRows);
  } else {
    HWY_UNROLL(8)
    for (std::size_t r = 0; r < R; ++r) {
      HWY_UNROLL(8)
      for (std::size_t t = 0; t < T; ++t) {
        hn::StoreU(sums.of[r][t], D(), kept + (r * T + t) * kLanes);
      }
    }
  }
}

// Tokens [first_token, first_token + tokens) against the panel of rows from `row` on. `x` is
// [parts of the inner dimension][tokens, padded to tiles][kPanelDepth].
template <class Row>
void panel(const LinearArgs& args, std::size_t first_token, std::size_t tokens, const float* x,
           std::size_t row) {
  constexpr std::size_t kTileFloats = kTileRows * kTileTokens * kLanes;
  const std::size_t groups = (tokens + kTileTokens - 1) / kTileTokens;
  const std::size_t count = HWY_MIN(kPanelRows, args.n - row);
  const std::size_t quads = (count + kTileRows - 1) / kTileRows;
  float* weights = scratch(Scratch::weight_panel, kPanelRows * kPanelDepth);
  float* kept =
      scratch(Scratch::sums, kTokenBlock / kTileTokens * (kPanelRows / kTileRows) * kTileFloats);
  float* results = scratch(Scratch::results, kTokenBlock * kPanelRows);

  for (std::size_t k = 0; k < args.k; k += kPanelDepth) {
    const std::size_t depth = HWY_MIN(kPanelDepth, args.k - k);
    for (std::size_t r = 0; r < quads * kTileRows; ++r) {
      widen_row(row_of<Row>(args, row + r) + k, depth, weights + r * kPanelDepth);
    }
    const float* part = x + k * groups * kTileTokens;
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t q = 0; q < quads; ++q) {
        panel_tile(weights + q * kTileRows * kPanelDepth, padded_to_block_of<Row>(depth),
                   part + g * kTileTokens * kPanelDepth, k == 0, k + kPanelDepth >= args.k,
                   kept + (g * quads + q) * kTileFloats,
                   results + g * kTileTokens * kPanelRows + q * kTileRows);
      }
    }
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    finish(args, first_token + t, row, count, results + t * kPanelRows);
  }
}

template <class Row>
void linear_panels(const LinearArgs& args) {
  const std::size_t parts = (args.k + kPanelDepth - 1) / kPanelDepth;
  float* x = scratch(Scratch::packed_rows, parts * kTokenBlock * kPanelDepth);
  for (std::size_t first = 0; first < args.rows; first += kTokenBlock) {
    const std::size_t tokens = HWY_MIN(kTokenBlock, args.rows - first);
    const std::size_t padded = (tokens + kTileTokens - 1) / kTileTokens * kTileTokens;
    parallel_for(padded, [&](std::size_t t) HWY_ATTR {
      for (std::size_t p = 0; p < parts; ++p) {
        float* to = x + (p * padded + t) * kPanelDepth;
        const std::size_t k = p * kPanelDepth;
        // The tokens that fill up the last tile repeat the last one; nobody reads their results.
        pack_row<Row>(args, first + HWY_MIN(t, tokens - 1), k, HWY_MIN(kPanelDepth, args.k - k),
                      to);
      }
    });
    parallel_for((args.n + kPanelRows - 1) / kPanelRows, [&](std::size_t task) HWY_ATTR {
      panel<Row>(args, first, tokens, x, task * kPanelRows);
    });
  }
}

template <class Row>
void linear_of(const LinearArgs& args) {
  args.rows <= kDirectTokens ? linear_direct<Row>(args) : linear_panels<Row>(args);
}

void linear(const LinearArgs& args) {
  switch (args.encoding) {
    case Encoding::int8: return linear_of<const Int8*>(args);
    case Encoding::int4: return linear_of<Int4Row>(args);
    case Encoding::native: break;
  }
  switch (args.weight_type) {
    case DType::f32: return linear_of<const float*>(args);
    case DType::bf16: return linear_of<const Bf16*>(args);
    case DType::f16: return linear_of<const F16*>(args);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(linear);

void linear(const LinearArgs& args) { HWY_DYNAMIC_DISPATCH(linear)(args); }

}  // namespace sluice::cpu
#endif
