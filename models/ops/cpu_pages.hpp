// Where a token's keys and values lie in the paged KV cache.
#pragma once
#include <cstddef>
#include <cstdint>

#include "models/ops/kernels.hpp"

namespace sluice::cpu {

// head_dim elements of the key (or the value) of one head; the rows of the later tokens of the same
// page follow it.
void* kv_row(const KvLayer& kv, std::size_t element_bytes, std::int32_t sequence,
             std::size_t position, std::size_t head, bool value);

// Throws Error where a row's sequence, its position or one of the pages that it sees is out of
// range; `context` bounds the positions beside the pages.
void check_pages(const KvLayer& kv, const RowIndex& rows, DType type, std::uint64_t context);

}  // namespace sluice::cpu
