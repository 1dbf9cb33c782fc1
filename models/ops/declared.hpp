// An operation while it is being declared: what it touches and what it costs.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/layer_provider.hpp"
#include "models/ops/kernel_args.hpp"

namespace sluice {

inline constexpr std::uint64_t kIndexBytes = sizeof(std::int32_t);

// The ranges of one operation, each once; those without bytes are left out.
class Ranges {
 public:
  void add(const void* data, std::uint64_t bytes) { add(range_of(data, bytes)); }
  void add(Range range) {
    const auto same = [&](const Range& r) {
      return r.begin == range.begin && r.size == range.size;
    };
    if (range.size == 0 || std::ranges::any_of(view(), same)) return;
    ranges_.at(count_++) = range;
  }
  std::span<const Range> view() const { return {ranges_.data(), count_}; }

 private:
  std::array<Range, 16> ranges_;
  std::size_t count_ = 0;
};

// Declared while it is built, enqueued by put().
struct Declared {
  explicit Declared(const char* literal) : name(literal) {}

  const char* name;
  std::uint64_t bytes = 0, flops = 0;
  std::uint32_t parts = 1;
  Ranges reads, writes;

  // `more_reads`: more than there is room for here.
  void put(IDevice& device, StreamId stream, const Body& body,
           std::span<const Range> more_reads = {}) const {
    std::vector<Range> all_reads;
    if (!more_reads.empty()) {
      all_reads.assign(reads.view().begin(), reads.view().end());
      all_reads.insert(all_reads.end(), more_reads.begin(), more_reads.end());
    }
    Op op;
    op.name = name;
    op.bytes = bytes;
    op.flops = flops;
    op.parts = parts;
    op.reads = more_reads.empty() ? reads.view() : std::span<const Range>(all_reads);
    op.writes = writes.view();
    device.enqueue(stream, op, body);
  }
};

// What parts of operations touch and cost.
void declare(Declared& op, const RmsNormArgs& args, const Weights& weights);
void declare(Declared& op, const LinearArgs& args, const Weights& weights);

}  // namespace sluice
