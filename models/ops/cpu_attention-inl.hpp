// Attention of a block of rows to one head of keys and values.
//
// For each row and query head, per span of kSpan positions, each step in a fixed order:
//   score[j]  = (q . k_j) * scale          the sum as cpu_tile-inl.hpp orders it
//   largest   = the largest score
//   weight[j] = exp(score[j] - largest)
//   sum       = the weights, in kLanes lanes with j ascending, then over the lanes
//   out       = weight[j] * v_j, j ascending
// and the spans merged ascending. Nothing of it depends on which rows are computed together.
#if defined(SLUICE_CPU_ATTENTION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_ATTENTION_INL
#undef SLUICE_CPU_ATTENTION_INL
#else
#define SLUICE_CPU_ATTENTION_INL
#endif

#include <cmath>

#include "models/ops/cpu_attention_plan.hpp"
#include "models/ops/cpu_pages.hpp"
#include "models/ops/cpu_scratch.hpp"
#include "models/ops/cpu_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// Of more queries than this, keys and values of a span are converted to f32 once.
inline constexpr std::size_t kDirectQueries = 2 * kTileTokens;
// Queries and vectors of a head's output that are summed at once.
inline constexpr std::size_t kValueQueries = kTileTokens == 6 ? 6 : 2;
inline constexpr std::size_t kValueVectors = 4;

// A query's share of one span, or of all spans so far; `out` is not yet divided by the sum, in
// blocks of the cache's order.
struct Part {
  static std::size_t floats(std::size_t width) { return 2 * kLanes + width; }

  float& largest() const { return data[0]; }
  float& sum() const { return data[1]; }
  float* out() const { return data + 2 * kLanes; }

  float* data;
};

// Rows of keys or of values that follow each other in memory.
template <class K>
struct KvRows {
  const K* data;
  std::size_t stride, size;   // elements: from row to row, of a row
  std::size_t offset, count;  // the rows are positions offset.. of the span

  const K* row(std::size_t j) const { return data + j * stride; }
};

// An object belongs to the thread that made it: its buffers are scratch memory.
template <class T>
class Head {
 public:
  Head(const AttentionArgs& args, const RowBlock& rows, std::size_t head)
      : args_(args),
        rows_(rows),
        head_(head),
        group_(args.heads / args.kv.kv_heads),
        queries_(rows.count * group_),
        width_(padded_to_block(args.kv.head_dim)),
        q_(scratch(Scratch::queries, queries_ * width_)),
        scores_(scratch(Scratch::scores, queries_ * kSpan)) {
    for (std::size_t i = 0; i < queries_; ++i) {
      pack<T>(query(i), args_.kv.head_dim, q_ + i * width_);
    }
  }

  // Of what attend() writes and merge() and store() read.
  static std::size_t parts_floats(const AttentionArgs& args, const RowBlock& rows) {
    return rows.count * (args.heads / args.kv.kv_heads) *
           Part::floats(padded_to_block(args.kv.head_dim));
  }

  // One Part per query that sees a position of the span; the others' are left as they are.
  void attend(std::size_t span, float* parts) {
    begin_ = span * kSpan;
    const std::size_t seen = HWY_MIN(kSpan, rows_.furthest + 1 - begin_);
    if (queries_ > kDirectQueries) {
      score(converted(seen, false));
      weigh_all(parts);
      add_values(converted(seen, true), parts);
    } else {
      for (std::size_t j = 0; j < seen; j += kPageTokens) score(page(j, seen, false));
      weigh_all(parts);
      for (std::size_t j = 0; j < seen; j += kPageTokens) add_values(page(j, seen, true), parts);
    }
  }

  // Adds a span's parts to the state of the spans before it.
  void merge(std::size_t span, float* parts, float* state) {
    begin_ = span * kSpan;
    for (std::size_t i = 0; i < queries_; ++i) {
      if (limit_of(i) == 0) continue;
      const Part from = part(parts, i);
      const Part to = part(state, i);
      if (span == 0) {
        std::memcpy(to.data, from.data, Part::floats(width_) * sizeof(float));
        continue;
      }
      const float largest = HWY_MAX(to.largest(), from.largest());
      const V shift = hn::Set(D(), largest);
      const V old_scale = exp(hn::Sub(hn::Set(D(), to.largest()), shift));
      const V new_scale = exp(hn::Sub(hn::Set(D(), from.largest()), shift));
      to.largest() = largest;
      to.sum() = hn::GetLane(hn::MulAdd(hn::Set(D(), from.sum()), new_scale,
                                        hn::Mul(hn::Set(D(), to.sum()), old_scale)));
      for (std::size_t d = 0; d < width_; d += kLanes) {
        const V old = hn::Mul(hn::LoadU(D(), to.out() + d), old_scale);
        hn::StoreU(hn::MulAdd(hn::LoadU(D(), from.out() + d), new_scale, old), D(), to.out() + d);
      }
    }
  }

  void store(float* state) const {
    const std::size_t size = args_.kv.head_dim;
    for (std::size_t i = 0; i < queries_; ++i) {
      const Part from = part(state, i);
      const V sum = hn::Set(D(), from.sum());
      T* to = static_cast<T*>(args_.out) + (row_of(i) * args_.heads + head_of(i)) * size;
      for (std::size_t d = 0; d < size; d += kBlock) {
        V first = hn::Div(hn::LoadU(D(), from.out() + d), sum);
        V second = hn::Div(hn::LoadU(D(), from.out() + d + kLanes), sum);
        restore_block<T>(first, second);
        narrow_some(first, to + d, size - d);
        if (size - d > kLanes) narrow_some(second, to + d + kLanes, size - d - kLanes);
      }
    }
  }

 private:
  std::size_t row_of(std::size_t i) const { return rows_.first + i / group_; }
  std::size_t head_of(std::size_t i) const { return head_ * group_ + i % group_; }
  Part part(float* parts, std::size_t i) const { return {parts + i * Part::floats(width_)}; }

  const T* query(std::size_t i) const {
    const std::size_t row_heads = args_.heads + 2 * args_.kv.kv_heads;
    return static_cast<const T*>(args_.qkv) +
           (row_of(i) * row_heads + head_of(i)) * args_.kv.head_dim;
  }

  // How many positions of the span query i sees.
  std::size_t limit_of(std::size_t i) const {
    const std::size_t end = static_cast<std::size_t>(args_.rows.positions[row_of(i)]) + 1;
    return end <= begin_ ? 0 : HWY_MIN(kSpan, end - begin_);
  }

  // The span's positions from `offset` to the end of their page.
  KvRows<T> page(std::size_t offset, std::size_t seen, bool value) const {
    const void* data = kv_row(args_.kv, sizeof(T), rows_.sequence, begin_ + offset, head_, value);
    const std::size_t size = args_.kv.head_dim;
    return {static_cast<const T*>(data), size, size, offset,
            HWY_MIN(std::size_t{kPageTokens}, seen - offset)};
  }

  KvRows<float> converted(std::size_t seen, bool value) const {
    float* to = scratch(value ? Scratch::values : Scratch::keys, kSpan * width_);
    for (std::size_t offset = 0; offset < seen; offset += kPageTokens) {
      const KvRows<T> from = page(offset, seen, value);
      for (std::size_t j = 0; j < from.count; ++j) {
        widen_row(from.row(j), from.size, to + (offset + j) * width_);
      }
    }
    return {to, width_, width_, 0, seen};
  }

  template <class K>
  void score(const KvRows<K>& keys) {
    std::size_t i = 0;
    for (; i + kTileTokens <= queries_; i += kTileTokens) score_tile<kTileTokens>(keys, i);
    for (; i + 2 <= queries_; i += 2) score_tile<2>(keys, i);
    for (; i < queries_; ++i) score_tile<1>(keys, i);
  }

  // Queries i to i + N - 1. The last tile of keys repeats the last key; weigh() ignores those scores.
  template <std::size_t N, class K>
  HWY_INLINE void score_tile(const KvRows<K>& keys, std::size_t i) {
    for (std::size_t j = 0; j < keys.count; j += kTileRows) {
      const K* rows[kTileRows];
      for (std::size_t r = 0; r < kTileRows; ++r) {
        rows[r] = keys.row(HWY_MIN(j + r, keys.count - 1));
      }
      Sums<kTileRows, N> sums;
      clear(sums);
      add_products(rows, keys.size, q_ + i * width_, width_, sums);
      HWY_UNROLL(8)
      for (std::size_t t = 0; t < N; ++t) {
        sum_lanes(sums, t, scores_ + (i + t) * kSpan + keys.offset + j);
      }
    }
  }

  void weigh_all(float* parts) {
    for (std::size_t i = 0; i < queries_; ++i) {
      const std::size_t limit = limit_of(i);
      if (limit != 0) weigh(scores_ + i * kSpan, limit, part(parts, i));
    }
  }

  // Scores to weights, in place.
  void weigh(float* scores, std::size_t limit, const Part& to) const {
    const D d;
    const V scale = hn::Set(d, args_.scale);
    const V none = hn::Set(d, -HUGE_VALF);
    V largest = none;
    for (std::size_t j = 0; j < limit; j += kLanes) {
      V value = hn::Mul(hn::LoadU(d, scores + j), scale);
      if (limit - j < kLanes) value = hn::IfThenElse(hn::FirstN(d, limit - j), value, none);
      hn::StoreU(value, d, scores + j);
      largest = hn::Max(largest, value);
    }
    to.largest() = max_of_lanes(largest);
    const V shift = hn::Set(d, to.largest());
    V sum = hn::Zero(d);
    for (std::size_t j = 0; j < limit; j += kLanes) {
      const V weight = exp(hn::Sub(hn::LoadU(d, scores + j), shift));
      hn::StoreU(rounded<T>(weight), d, scores + j);  // as the reference does; their sum is of f32
      sum = hn::Add(sum, weight);
    }
    to.sum() = sum_of_lanes(sum);
    std::memset(to.out(), 0, width_ * sizeof(float));
  }

  template <class X>
  void add_values(const KvRows<X>& values, float* parts) const {
    std::size_t i = 0;
    for (; i + kValueQueries <= queries_; i += kValueQueries) {
      add_values<kValueQueries>(values, i, parts);
    }
    for (; i < queries_; ++i) add_values<1>(values, i, parts);
  }

  // Queries i to i + N - 1: together as far as all of them see, then each on its own.
  template <std::size_t N, class X>
  HWY_INLINE void add_values(const KvRows<X>& values, std::size_t i, float* parts) const {
    std::size_t limits[N];
    std::size_t common = values.count;
    for (std::size_t t = 0; t < N; ++t) {
      const std::size_t limit = limit_of(i + t);
      limits[t] = limit <= values.offset ? 0 : HWY_MIN(values.count, limit - values.offset);
      common = HWY_MIN(common, limits[t]);
    }
    add_range<N>(values, 0, common, i, parts);
    for (std::size_t t = 0; t < N; ++t) add_range<1>(values, common, limits[t], i + t, parts);
  }

  template <std::size_t N, class X>
  HWY_INLINE void add_range(const KvRows<X>& values, std::size_t from, std::size_t to,
                            std::size_t i, float* parts) const {
    if (from >= to) return;
    constexpr std::size_t kColumns = kValueVectors * kLanes;
    std::size_t column = 0;
    for (; column + kColumns <= width_; column += kColumns) {
      value_tile<N, kValueVectors>(values, from, to, i, column, parts);
    }
    if (column < width_) value_tile<N, 2>(values, from, to, i, column, parts);
  }

  template <std::size_t N, std::size_t M, class X>
  HWY_INLINE void value_tile(const KvRows<X>& values, std::size_t from, std::size_t to,
                             std::size_t i, std::size_t column, float* parts) const {
    Sums<N, M> sums;
    HWY_UNROLL(8)
    for (std::size_t t = 0; t < N; ++t) {
      const float* out = part(parts, i + t).out() + column;
      HWY_UNROLL(8)
      for (std::size_t m = 0; m < M; ++m) sums.of[t][m] = hn::LoadU(D(), out + m * kLanes);
    }
    const float* weights = scores_ + i * kSpan + values.offset;
    for (std::size_t j = from; j < to; ++j) {
      V value[M];
      HWY_UNROLL(8)
      for (std::size_t m = 0; m < M; m += 2) {
        const std::size_t at = column + m * kLanes;
        widen_some_block(values.row(j) + at, values.size - at, value[m], value[m + 1]);
      }
      HWY_UNROLL(8)
      for (std::size_t t = 0; t < N; ++t) {
        const V weight = hn::Set(D(), weights[t * kSpan + j]);
        HWY_UNROLL(8)
        for (std::size_t m = 0; m < M; ++m) {
          sums.of[t][m] = hn::MulAdd(weight, value[m], sums.of[t][m]);
        }
      }
    }
    HWY_UNROLL(8)
    for (std::size_t t = 0; t < N; ++t) {
      float* out = part(parts, i + t).out() + column;
      HWY_UNROLL(8)
      for (std::size_t m = 0; m < M; ++m) hn::StoreU(sums.of[t][m], D(), out + m * kLanes);
    }
  }

  const AttentionArgs& args_;
  const RowBlock& rows_;
  std::size_t head_, group_;
  std::size_t queries_;    // rows times the query heads of a group
  std::size_t width_;      // head_dim, padded to blocks
  float* q_;               // [queries][width]
  float* scores_;          // [queries][kSpan]
  std::size_t begin_ = 0;  // of the span
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
