#include "core/engine/resident_provider.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "core/engine/figures.hpp"
#include "core/engine/staging_ring.hpp"
#include "core/error.hpp"

namespace sluice {
namespace {

std::vector<Buffer> allocate_slabs(IDevice& device, const ModelView& view) {
  std::vector<Buffer> slabs(view.units.size());
  std::uint64_t needed = 0;
  for (const UnitInfo& unit : view.units)
    if (unit.kind != UnitKind::embedding) needed += unit.size(Encoding::native);
  const std::uint64_t free = free_bytes(device);
  try {
    for (const UnitInfo& unit : view.units)
      if (unit.kind != UnitKind::embedding)
        slabs[unit.id] =
            Buffer(device, Buffer::Where::device, unit.size(Encoding::native), unit_text(unit));
  } catch (const MemoryLimitError& e) {
    throw MemoryLimitError(
        "{}. All weights take {} ({} bytes) beside the {} in use, the limit is {}", e.what(),
        bytes_text(needed), needed, bytes_text(device.info().memory_limit - free),
        bytes_text(device.info().memory_limit));
  }
  return slabs;
}

}  // namespace

ResidentProvider::ResidentProvider(IDevice& device, StreamId compute, const WeightStore& weights)
    : device_(device), compute_(compute), slabs_(allocate_slabs(device, weights.view())) {
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
    std::byte* const to = slabs_[unit.id].data();
    const std::byte* const from = weights.slab(unit.id, Encoding::native);
    const std::uint64_t total = slabs_[unit.id].bytes();
    if (weights.is_pinned(unit.id)) {
      copy(unit.id, to, from, total);
    } else {
      for (std::uint64_t at = 0; at < total; at += StagingRing::kHalfBytes) {
        const std::uint64_t bytes = std::min(StagingRing::kHalfBytes, total - at);
        copy(unit.id, to + at, ring->fill(compute, unit.id, from + at, bytes), bytes);
        ring->read_on(compute);
      }
    }
    ++units_[unit.kind];
    loaded_bytes_ += slabs_[unit.id].bytes();
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
  for (UnitId unit : step.needs)
    if (unit >= slabs_.size() || slabs_[unit].bytes() == 0)
      throw Error("step {} needs unit {}, which is not one of those on the device", step.index,
                  unit);
  return {*this, step};
}

Weights ResidentProvider::use(const Step& step, std::size_t i) {
  if (i >= step.needs.size())
    throw Error("unit {} of step {}'s needs is used; it has {}", i, step.index, step.needs.size());
  const Buffer& slab = slabs_[step.needs[i]];
  return {slab.data(), slab.range(), Encoding::native};
}

}  // namespace sluice
