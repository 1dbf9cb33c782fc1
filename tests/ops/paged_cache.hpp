// A paged KV cache of several sequences, its pages dealt out in random order, with access to single
// elements for comparison.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "models/ops/kernels.hpp"
#include "tests/ops/reference.hpp"

namespace sluice::test {

class PagedCache {
 public:
  PagedCache(DType type, std::uint32_t sequences, std::uint32_t pages_per_sequence,
             std::uint32_t kv_heads, std::uint32_t head_dim, Seeded& random)
      : sequences_(sequences),
        pages_per_sequence_(pages_per_sequence),
        kv_heads_(kv_heads),
        head_dim_(head_dim),
        page_elements_(std::size_t{2} * kv_heads * kPageTokens * head_dim),
        pages_(type, page_elements_ * (sequences * pages_per_sequence + 2)),
        table_(sequences * pages_per_sequence + 2) {
    pages_.fill(std::byte{0xff});  // NaN in every type: whatever was not written shows
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random.rng);
  }

  KvLayer layer() {
    return {pages_.data(),
            page_elements_ * size_of(pages_.type()),
            pages_.size() / page_elements_,
            table_.data(),
            sequences_,
            pages_per_sequence_,
            kv_heads_,
            head_dim_};
  }

  double get(bool value, std::size_t sequence, std::size_t position, std::size_t head,
             std::size_t i) const {
    return pages_.get(index(value, sequence, position, head) + i);
  }
  void set(bool value, std::size_t sequence, std::size_t position, std::size_t head, std::size_t i,
           double to) {
    pages_.set(index(value, sequence, position, head) + i, to);
  }

  void fill_random(std::size_t sequence, std::size_t positions, Seeded& random) {
    std::normal_distribution<double> normal;
    for (const bool value : {false, true}) {
      for (std::size_t p = 0; p < positions; ++p) {
        for (std::size_t h = 0; h < kv_heads_; ++h) {
          for (std::size_t i = 0; i < head_dim_; ++i) {
            set(value, sequence, p, h, i, normal(random.rng));
          }
        }
      }
    }
  }

  const Tensor& pages() const { return pages_; }

 private:
  std::size_t index(bool value, std::size_t sequence, std::size_t position,
                    std::size_t head) const {
    const auto page =
        static_cast<std::size_t>(table_[sequence * pages_per_sequence_ + position / kPageTokens]);
    return page * page_elements_ +
           (((value ? kv_heads_ : 0) + head) * kPageTokens + position % kPageTokens) * head_dim_;
  }

  std::uint32_t sequences_, pages_per_sequence_, kv_heads_, head_dim_;
  std::size_t page_elements_;
  Tensor pages_;
  std::pmr::vector<std::int32_t> table_;
};

}  // namespace sluice::test
