#include "models/kv_cache.hpp"

#include <algorithm>

namespace sluice {
namespace {

std::uint64_t page_bytes(const ModelConfig& config, DType type) {
  return 2ull * static_cast<std::uint64_t>(config.kv_size()) * kPageTokens * size_of(type);
}

}  // namespace

PageTable::PageTable(std::uint32_t sequences, std::uint32_t positions)
    : sequences_(sequences),
      positions_(positions),
      pages_per_sequence_(pages_for(positions)),
      entries_(std::size_t{sequences} * pages_per_sequence_, kNoPage),
      reserved_(sequences, 0) {
  for (std::uint32_t page = 0; page < page_count(); ++page)
    free_.push(static_cast<std::int32_t>(page));
}

bool PageTable::reserve(std::uint32_t sequence, std::uint32_t positions) {
  if (positions > positions_)
    throw Error("sequence {} needs {} positions, its context holds {}", sequence, positions,
                positions_);
  const std::uint32_t wanted = pages_for(positions);
  bool changed = false;
  for (std::uint32_t& have = reserved_[sequence]; have < wanted; ++have) {
    entries_[std::size_t{sequence} * pages_per_sequence_ + have] = free_.top();
    free_.pop();
    changed = true;
  }
  return changed;
}

void PageTable::release(std::uint32_t sequence) {
  const auto row = entries_.begin() + std::ptrdiff_t{sequence} * pages_per_sequence_;
  for (auto entry = row; entry != row + reserved_[sequence]; ++entry) {
    free_.push(*entry);
    *entry = kNoPage;
  }
  reserved_[sequence] = 0;
}

KvCache::KvCache(IDevice& device, const ModelConfig& config, DType type, const PageTable& table)
    : shape_{.page_bytes = page_bytes(config, type),
             .page_count = table.page_count(),
             .sequences = table.sequences(),
             .pages_per_sequence = table.pages_per_sequence(),
             .kv_heads = static_cast<std::uint32_t>(config.kv_heads),
             .head_dim = static_cast<std::uint32_t>(config.head_dim)},
      pages_(device, Buffer::Where::device,
             shape_.page_bytes * shape_.page_count * static_cast<std::uint64_t>(config.layers),
             "the KV cache") {}

std::uint64_t KvCache::device_bytes(const ModelConfig& config, DType type, std::uint32_t sequences,
                                    std::uint32_t positions) {
  return page_bytes(config, type) * sequences * PageTable::pages_for(positions) *
         static_cast<std::uint64_t>(config.layers);
}

KvLayer KvCache::layer(std::int32_t layer, const std::int32_t* page_table) const {
  KvLayer out = shape_;
  out.pages =
      pages_.data() + static_cast<std::uint64_t>(layer) * shape_.page_bytes * shape_.page_count;
  out.page_table = page_table;
  return out;
}

}  // namespace sluice
