// Keys and values of every position, in pages of kPageTokens tokens.
#pragma once
#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "core/device/device.hpp"
#include "models/config.hpp"
#include "models/ops/kernels.hpp"

namespace sluice {

// Which page holds which part of which sequence: the host's book. A page number says where a page's
// keys and values lie in every layer; kernels find them through the table alone, so pages may move
// as long as the table is updated in stream order.
class PageTable {
 public:
  static constexpr std::int32_t kNoPage = -1;

  PageTable(std::uint32_t sequences, std::uint32_t positions);

  static std::uint32_t pages_for(std::uint32_t positions) {
    return positions / kPageTokens + (positions % kPageTokens != 0);
  }

  // Gives `sequence` pages for its positions [0, positions), the lowest free numbers first: the same
  // calls give the same pages. True when that took a new page. Throws Error beyond the capacity that
  // the table was made for.
  bool reserve(std::uint32_t sequence, std::uint32_t positions);
  // Frees its pages. They may be given to another sequence at once: all work on pages is enqueued
  // on one compute stream, so the new sequence's writes come after the old one's last read.
  void release(std::uint32_t sequence);

  std::uint32_t sequences() const { return sequences_; }
  std::uint32_t pages_per_sequence() const { return pages_per_sequence_; }
  std::uint32_t page_count() const { return sequences_ * pages_per_sequence_; }
  std::uint32_t reserved(std::uint32_t sequence) const { return reserved_[sequence]; }
  // [sequences][pages_per_sequence]; kNoPage where none is reserved.
  std::span<const std::int32_t> entries() const { return entries_; }

 private:
  std::uint32_t sequences_, positions_, pages_per_sequence_;
  std::vector<std::int32_t> entries_;
  std::vector<std::uint32_t> reserved_;  // pages, by sequence
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> free_;
};

// The pages' memory: [layer][page], each page as KvLayer says.
class KvCache {
 public:
  KvCache(IDevice& device, const ModelConfig& config, DType type, const PageTable& table);

  static std::uint64_t device_bytes(const ModelConfig& config, DType type, std::uint32_t sequences,
                                    std::uint32_t positions);

  // `page_table` is the table's copy on the device.
  KvLayer layer(std::int32_t layer, const std::int32_t* page_table) const;

 private:
  KvLayer shape_;
  Buffer pages_;
};

}  // namespace sluice
