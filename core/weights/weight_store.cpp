#include "core/weights/weight_store.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/round_up.hpp"
#include "core/weights/pack.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kSlabAlignment = 256;

constexpr std::uint64_t slab_aligned(std::uint64_t n) { return round_up(n, kSlabAlignment); }

}  // namespace

WeightStore::WeightStore(IDevice& device, ModelPlan plan, const ITensorSource& source,
                         const Options& options)
    : layout_(std::move(plan), source, options.dtype), slabs_(layout_.units().size()) {
  const std::vector<Wanted> all = wanted(options.encodings, source);
  allocate(device, all, options);
  if (!device.info().executes) return;
  std::vector<SlabToFill> slabs;
  for (const auto& [unit, encoding, bytes] : all)
    slabs.push_back({unit, encoding, of(unit, encoding).data});
  pack_slabs(layout_, slabs, source, options.threads, [&](std::uint64_t done, std::uint64_t total) {
    if (options.progress) options.progress({done, total});
  });
}

std::vector<WeightStore::Wanted> WeightStore::wanted(const std::vector<EncodingSet>& encodings,
                                                     const ITensorSource& source) const {
  const std::span<const UnitInfo> units = layout_.units();
  std::vector<EncodingSet> sets(units.size(), Encoding::native);
  if (!encodings.empty()) sets = encodings;
  if (sets.size() != units.size())
    throw Error("encodings are given for {} units of {}", sets.size(), units.size());
  for (const UnitInfo& unit : units)
    if (unit.kind == UnitKind::embedding)
      sets[plan().units[unit.id].shares.value_or(unit.id)].add(Encoding::native);

  std::vector<Wanted> out;
  for (const UnitInfo& unit : units) {
    if (plan().units[unit.id].shares) continue;
    for (std::size_t e = 0; e < kEncodings; ++e) {
      const auto encoding = static_cast<Encoding>(e);
      if (!sets[unit.id].has(encoding)) continue;
      if (unit.size(encoding) == 0) refuse(unit.id, encoding, source);
      out.push_back({unit.id, encoding, unit.size(encoding)});
    }
  }
  return out;
}

void WeightStore::refuse(UnitId unit, Encoding encoding, const ITensorSource& source) const {
  for (const TensorSpec& tensor : spec(unit).tensors)
    if (const std::optional<Encoding> stored = source.quantised_as(tensor))
      throw InputError(
          "{}: {} comes quantised as {} and is not quantised once more as {}; ask for {} or native",
          source.describe(), tensor.name, name_of(*stored), name_of(encoding), name_of(*stored));
  throw Error("unit {} of {} cannot be stored as {}", unit, layout_.units().size(),
              name_of(encoding));
}

void WeightStore::allocate(IDevice& device, std::span<const Wanted> wanted,
                           const Options& options) {
  std::uint64_t total = 0;  // of all slabs and the gaps between them
  for (const Wanted& slab : wanted) total = slab_aligned(total) + slab.bytes;
  const std::uint64_t limit = options.pinned_limit.value_or(total);
  bool as_one = total <= limit;
  if (as_one) {
    try {
      std::byte* to = pinned_.emplace_back(device, Buffer::Where::pinned, total, "weights").data();
      for (const Wanted& slab : wanted) {
        of(slab.unit, slab.encoding).data = to;
        to += slab_aligned(slab.bytes);
      }
    } catch (const PinningError&) {  // then each by itself, as far as it goes
      as_one = false;
    }
  }
  if (!as_one) allocate_each(device, wanted, limit);
  for (UnitId id = 0; id < slabs_.size(); ++id)
    if (const std::optional<UnitId> owner = plan().units[id].shares)
      of(id, Encoding::native) = of(*owner, Encoding::native);
}

void WeightStore::allocate_each(IDevice& device, std::span<const Wanted> wanted,
                                std::uint64_t limit) {
  const auto allocate_one = [&](const Wanted& one, bool needed) {
    Slab& slab = of(one.unit, one.encoding);
    slab.pinned = unpinned_bytes_ == 0 && pinned_bytes() + one.bytes <= limit;
    if (slab.pinned) {
      try {
        slab.data =
            pinned_.emplace_back(device, Buffer::Where::pinned, one.bytes, "weights").data();
        return;
      } catch (const PinningError&) {
        if (needed) throw;
        slab.pinned = false;
      }
    }
    if (needed)
      throw InputError(
          "the embedding of {} bytes must be pinned, as kernels read it where it lies; the limit "
          "on "
          "pinned weights is {} bytes",
          one.bytes, limit);
    slab.data = allocate_unpinned(one.bytes);
  };
  std::vector<bool> read_in_place(slabs_.size(), false);  // the embedding's owner
  for (const UnitInfo& unit : layout_.units())
    if (unit.kind == UnitKind::embedding)
      read_in_place[plan().units[unit.id].shares.value_or(unit.id)] = true;
  const auto holds_embedding = [&](const Wanted& one) {
    return one.encoding == Encoding::native && read_in_place[one.unit];
  };
  for (const Wanted& one : wanted)
    if (holds_embedding(one)) allocate_one(one, true);
  for (const Wanted& one : wanted)
    if (!holds_embedding(one)) allocate_one(one, false);
}

std::byte* WeightStore::allocate_unpinned(std::uint64_t bytes) {
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(kSlabAlignment, slab_aligned(bytes)));
  if (!memory) throw Error("the system has no {} bytes of memory left for weights", bytes);
  unpinned_bytes_ += bytes;
  return unpinned_.emplace_back(memory).get();
}

std::uint64_t WeightStore::pinned_bytes() const {
  std::uint64_t sum = 0;
  for (const Buffer& block : pinned_) sum += block.bytes();
  return sum;
}

bool WeightStore::stores(UnitId unit, Encoding encoding) const {
  return unit < slabs_.size() && of(unit, encoding).data;
}

const std::byte* WeightStore::slab(UnitId unit, Encoding encoding) const {
  if (!stores(unit, encoding))
    throw Error("unit {} of {} has no slab encoded as {}", unit, slabs_.size(), name_of(encoding));
  return of(unit, encoding).data;
}

}  // namespace sluice
