#include "core/engine/resident_provider.hpp"

#include <array>

#include "core/engine/figures.hpp"
#include "core/error.hpp"

namespace sluice {
namespace {

std::vector<Buffer> allocate_slabs(IDevice& device, const ModelView& view) {
  std::vector<Buffer> slabs(view.units.size());
  std::uint64_t needed = 0;
  for (const UnitInfo& unit : view.units)
    if (unit.kind != UnitKind::embedding) needed += unit.size(Encoding::native);
  const std::uint64_t used = device.memory_use().device_bytes;
  try {
    for (const UnitInfo& unit : view.units)
      if (unit.kind != UnitKind::embedding)
        slabs[unit.id] =
            Buffer(device, Buffer::Where::device, unit.size(Encoding::native), unit_text(unit));
  } catch (const MemoryLimitError& e) {
    throw MemoryLimitError(
        "{}. All weights take {} ({} bytes) beside the {} in use, the limit is {}", e.what(),
        bytes_text(needed), needed, bytes_text(used), bytes_text(device.info().memory_limit));
  }
  return slabs;
}

}  // namespace

ResidentProvider::ResidentProvider(IDevice& device, StreamId compute, const WeightStore& weights)
    : device_(device), compute_(compute), slabs_(allocate_slabs(device, weights.view())) {
  const auto load = [&](const UnitInfo& unit) {
    const Buffer& to = slabs_[unit.id];
    const std::byte* from = weights.slab(unit.id, Encoding::native);
    const std::array reads{range_of(from, to.bytes())};
    const std::array writes{to.range()};
    device.copy(compute,
                {.name = "load",
                 .unit = unit.id,
                 .on = Resource::h2d,
                 .bytes = to.bytes(),
                 .reads = reads,
                 .writes = writes},
                to.data(), from, to.bytes());
  };
  for (const UnitInfo& unit : weights.view().units) {
    if (unit.kind == UnitKind::embedding) continue;
    load(unit);
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
