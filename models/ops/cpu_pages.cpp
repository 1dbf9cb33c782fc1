#include "models/ops/cpu_pages.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "models/ops/cpu_kernels.hpp"

namespace sluice::cpu {

void* kv_row(const KvLayer& kv, std::size_t element_bytes, std::int32_t sequence,
             std::size_t position, std::size_t head, bool value) {
  const std::size_t entry =
      static_cast<std::size_t>(sequence) * kv.pages_per_sequence + position / kPageTokens;
  const std::size_t row = ((value ? kv.kv_heads : 0) + head) * kPageTokens + position % kPageTokens;
  return kv.pages + static_cast<std::size_t>(kv.page_table[entry]) * kv.page_bytes +
         row * kv.head_dim * element_bytes;
}

void check_pages(const KvLayer& kv, const RowIndex& rows, DType type, std::uint64_t context) {
  if (kv.head_dim == 0 || kv.head_dim > kMaxHeadDim || kv.head_dim % 2 != 0) {
    throw Error("head_dim {}: the CPU kernels take even ones up to {}", kv.head_dim, kMaxHeadDim);
  }
  const std::uint64_t needed =
      std::uint64_t{2} * kv.kv_heads * kPageTokens * kv.head_dim * size_of(type);
  if (kv.page_bytes < needed) {
    throw Error("a KV page of {} heads of {} takes {} bytes, the cache's have {}", kv.kv_heads,
                kv.head_dim, needed, kv.page_bytes);
  }
  const std::uint64_t positions =
      std::min(context, std::uint64_t{kv.pages_per_sequence} * kPageTokens);
  for (std::uint32_t r = 0; r < rows.count; ++r) {
    const std::int32_t sequence = rows.sequences[r];
    const std::int32_t position = rows.positions[r];
    if (sequence < 0 || static_cast<std::uint32_t>(sequence) >= kv.sequences || position < 0 ||
        static_cast<std::uint64_t>(position) >= positions) {
      throw Error("row {} is position {} of sequence {}: the KV cache has {} sequences of {}", r,
                  position, sequence, kv.sequences, positions);
    }
    // Rows of one sequence come in a run whose last sees the most pages.
    if (r + 1 < rows.count && rows.sequences[r + 1] == sequence &&
        rows.positions[r + 1] >= position) {
      continue;
    }
    const std::int32_t* pages =
        kv.page_table + static_cast<std::size_t>(sequence) * kv.pages_per_sequence;
    for (std::uint32_t p = 0; p <= static_cast<std::uint32_t>(position) / kPageTokens; ++p) {
      if (pages[p] < 0 || static_cast<std::uint64_t>(pages[p]) >= kv.page_count) {
        throw Error("page {} of sequence {} is number {} of a KV cache of {} pages", p, sequence,
                    pages[p], kv.page_count);
      }
    }
  }
}

}  // namespace sluice::cpu
