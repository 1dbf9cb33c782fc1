#include "core/engine/resident_provider.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "core/device/drain.hpp"
#include "core/engine/figures.hpp"
#include "core/engine/staging_ring.hpp"
#include "core/error.hpp"
#include "core/round_up.hpp"
#include "core/weights/dequantise.hpp"

namespace sluice {
namespace {

std::vector<Encoding> encodings_of(const ModelView& view, const TransferOf& transfer) {
  std::vector<Encoding> out;
  for (const UnitInfo& unit : view.units)
    out.push_back(unit.kind == UnitKind::embedding ? Encoding::native : transfer(unit).resident);
  return out;
}

// Where each unit lies in one block, and behind the last, the block's bytes. One block, so that it can
// lie in large pages where units are smaller than those.
std::vector<std::uint64_t> lay_out(const ModelView& view, const std::vector<Encoding>& encodings) {
  std::vector<std::uint64_t> offsets{0};
  for (const UnitInfo& unit : view.units) {
    const std::uint64_t bytes =
        unit.kind == UnitKind::embedding ? 0 : unit.size(encodings[unit.id]);
    offsets.push_back(offsets.back() + round_up(bytes, kSlotAlignment));
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

ResidentProvider::ResidentProvider(IDevice& device, StreamId compute, const WeightStore& weights,
                                   const TransferOf& transfer)
    : device_(device),
      compute_(compute),
      weights_(weights),
      encodings_(encodings_of(weights.view(), transfer)),
      offsets_(lay_out(weights.view(), encodings_)),
      memory_(allocate(device, offsets_.back())) {
  load(transfer);
}

void ResidentProvider::load(const TransferOf& transfer) {
  const ModelView view = weights_.view();
  std::unique_ptr<StagingRing> ring;
  if (weights_.unpinned_bytes() != 0) ring = std::make_unique<StagingRing>(device_);
  Buffer staging;
  if (const std::uint64_t bytes = staging_bytes(view, transfer) / 2)
    staging = Buffer(device_, Buffer::Where::device, bytes, "staging for quantised weights");
  const auto copy = [&](UnitId unit, std::byte* to, const std::byte* from, std::uint64_t bytes) {
    const std::array reads{range_of(from, bytes)};
    const std::array writes{range_of(to, bytes)};
    device_.copy(compute_,
                 {.name = "load",
                  .unit = unit,
                  .on = Resource::h2d,
                  .bytes = bytes,
                  .reads = reads,
                  .writes = writes},
                 to, from, bytes);
  };
  for (const UnitInfo& unit : view.units) {
    if (unit.kind == UnitKind::embedding) continue;
    const auto [wire, resident] = transfer(unit);
    std::byte* const place = memory_.data() + offsets_[unit.id];
    std::byte* const to = wire == resident ? place : staging.data();
    const std::byte* const from = weights_.slab(unit.id, wire);
    const std::uint64_t total = unit.size(wire);
    if (weights_.is_pinned(unit.id, wire)) {
      copy(unit.id, to, from, total);
    } else {
      for (std::uint64_t at = 0; at < total; at += StagingRing::kHalfBytes) {
        const std::uint64_t bytes = std::min(StagingRing::kHalfBytes, total - at);
        copy(unit.id, to + at, ring->fill(compute_, unit.id, from + at, bytes), bytes);
        ring->read_on(compute_);
      }
    }
    if (wire != resident)
      enqueue_dequantise(device_, compute_, weights_.layout(), unit.id, wire, to, place);
    ++units_[unit.kind];
    loaded_bytes_ += total;
  }
  device_.sync(device_.record(compute_));
}

ResidentProvider::~ResidentProvider() { drain_quietly(device_, compute_); }

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
  const Encoding encoding = encodings_[unit];
  return {data, range_of(data, weights_.view().units[unit].size(encoding)), encoding};
}

}  // namespace sluice
