#include "core/engine/resident_provider.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "core/engine/budget.hpp"
#include "core/engine/figures.hpp"
#include "core/engine/staging_ring.hpp"
#include "core/error.hpp"

namespace sluice {
namespace {

// Where each unit lies in one block, and behind the last, the block's bytes. One block, so that it can
// lie in large pages where units are smaller than those.
std::vector<std::uint64_t> lay_out(const ModelView& view) {
  std::vector<std::uint64_t> offsets{0};
  for (const UnitInfo& unit : view.units) {
    const std::uint64_t bytes = unit.kind == UnitKind::embedding ? 0 : unit.size(Encoding::native);
    offsets.push_back(offsets.back() +
                      (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment);
  }
  return offsets;
}

Buffer allocate(IDevice& device, std::uint64_t needed) {
  const std::uint64_t free = free_bytes(device);
  try {
    return {device, Buffer::Where::device, needed, "all weights"};
  } catch (const MemoryLimitError& e) {
    throw MemoryLimitError(
        "{}. All weights take {} ({} bytes) beside the {} in use, the limit is {}", e.what(),
        bytes_text(needed), needed, bytes_text(device.info().memory_limit - free),
        bytes_text(device.info().memory_limit));
  }
}

}  // namespace

ResidentProvider::ResidentProvider(IDevice& device, StreamId compute, const WeightStore& weights)
    : device_(device),
      compute_(compute),
      weights_(weights),
      offsets_(lay_out(weights.view())),
      memory_(allocate(device, offsets_.back())) {
  const auto copy = [&](UnitId unit, std::byte* to, const std::byte* from, std::uint64_t bytes) {
    const std::array reads{range_of(from, bytes)};
    const std::array writes{range_of(to, bytes)};
    device.copy(compute,
                {.name = "load",
                 .unit = unit,
                 .on = Resource::h2d,
                 .bytes = bytes,
                 .reads = reads,
                 .writes = writes},
                to, from, bytes);
  };
  std::unique_ptr<StagingRing> ring;
  if (weights.unpinned_bytes() != 0) ring = std::make_unique<StagingRing>(device);
  for (const UnitInfo& unit : weights.view().units) {
    if (unit.kind == UnitKind::embedding) continue;
    std::byte* const to = memory_.data() + offsets_[unit.id];
    const std::byte* const from = weights.slab(unit.id, Encoding::native);
    const std::uint64_t total = unit.size(Encoding::native);
    if (weights.is_pinned(unit.id, Encoding::native)) {
      copy(unit.id, to, from, total);
    } else {
      for (std::uint64_t at = 0; at < total; at += StagingRing::kHalfBytes) {
        const std::uint64_t bytes = std::min(StagingRing::kHalfBytes, total - at);
        copy(unit.id, to + at, ring->fill(compute, unit.id, from + at, bytes), bytes);
        ring->read_on(compute);
      }
    }
    ++units_[unit.kind];
    loaded_bytes_ += total;
  }
  device.sync(device.record(compute));
}

ResidentProvider::~ResidentProvider() {
  try {
    device_.sync(device_.record(compute_));
  } catch (...) {  // whoever waited before has been told, and memory must be given back
  }
}

Lease ResidentProvider::acquire(const Step& step) {
  const std::span<const UnitInfo> units = weights_.view().units;
  for (UnitId unit : step.needs)
    if (unit >= units.size() || units[unit].kind == UnitKind::embedding)
      throw Error("step {} needs unit {}, which is not one of those on the device", step.index,
                  unit);
  return {*this, step};
}

Weights ResidentProvider::use(const Step& step, std::size_t i) {
  if (i >= step.needs.size())
    throw Error("unit {} of step {}'s needs is used; it has {}", i, step.index, step.needs.size());
  const UnitId unit = step.needs[i];
  const std::byte* data = memory_.data() + offsets_[unit];
  return {data, range_of(data, weights_.view().units[unit].size(Encoding::native)),
          Encoding::native};
}

}  // namespace sluice
