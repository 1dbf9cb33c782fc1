#include "core/weights/weight_store.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/weights/convert.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kTensorAlignment = 16;
constexpr std::uint64_t kSlabAlignment = 256;
constexpr std::uint64_t kPieceElements = 2ull << 20;

constexpr std::uint64_t aligned(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

// Gives the unit's tensors their types and offsets; returns the slab's bytes.
std::uint64_t lay_out_unit(UnitSpec& unit, const ITensorSource& source, DType dtype) {
  std::uint64_t end = 0;
  const TensorSpec* before = nullptr;
  for (TensorSpec& tensor : unit.tensors) {
    const DType stored = source.stored_type(tensor);
    tensor.dtype = dtype == DType::f32 ? stored : dtype;
    if (tensor.joined && before && tensor.dtype != before->dtype) {
      throw InputError(
          "{}: tensor {} is {} and {} is {}; they are read as one matrix and must have "
          "one type (dtype bf16 or f16 casts them)",
          source.describe(), before->name, name_of(before->dtype), tensor.name,
          name_of(tensor.dtype));
    }
    tensor.offset = tensor.joined ? end : aligned(end, kTensorAlignment);
    end = tensor.offset + tensor.elements() * size_of(tensor.dtype);
    before = &tensor;
  }
  return end;
}

// A part of one tensor, small enough to balance threads and large enough not to matter.
struct Piece {
  const TensorSpec* tensor = nullptr;
  DType stored = DType::f32;
  std::uint64_t first = 0, n = 0;  // elements
  std::byte* to = nullptr;
};

void pack_piece(const Piece& piece, const ITensorSource& source, std::vector<std::byte>& staging) {
  if (piece.stored == piece.tensor->dtype) {
    source.read(*piece.tensor, piece.first, piece.n, piece.to);
    return;
  }
  staging.resize(kPieceElements * sizeof(float));
  source.read(*piece.tensor, piece.first, piece.n, staging.data());
  convert(piece.stored, staging.data(), piece.tensor->dtype, piece.to, piece.n);
}

}  // namespace

WeightStore::WeightStore(IDevice& device, ModelPlan plan, const ITensorSource& source,
                         const Options& options)
    : plan_(std::move(plan)) {
  lay_out(source, options.dtype);
  allocate(device, options);
  if (device.info().executes) pack(source, options);
}

void WeightStore::lay_out(const ITensorSource& source, DType dtype) {
  const auto count = static_cast<UnitId>(plan_.units.size());
  units_.resize(count);
  offsets_.resize(count);
  for (UnitId id = 0; id < count; ++id) {
    UnitSpec& unit = plan_.units[id];
    const std::uint64_t bytes = lay_out_unit(unit, source, dtype);
    units_[id] = {id, unit.kind, unit.layer, unit.expert, {bytes}};
    if (is_streamed(unit.kind)) order_.push_back(id);
    if (unit.shares) continue;
    offsets_[id] = aligned(slab_bytes_, kSlabAlignment);
    slab_bytes_ = offsets_[id] + bytes;
  }
  for (UnitId id = 0; id < count; ++id) {
    if (const std::optional<UnitId> shared = plan_.units[id].shares) {
      offsets_[id] = offsets_[*shared];
    }
  }
}

void WeightStore::allocate(IDevice& device, const Options& options) {
  slabs_.resize(units_.size());
  const std::uint64_t limit = options.pinned_limit.value_or(slab_bytes_);
  if (slab_bytes_ <= limit) {
    try {
      std::byte* const block =
          pinned_.emplace_back(device, Buffer::Where::pinned, slab_bytes_, "weights").data();
      for (const UnitInfo& unit : units_) slabs_[unit.id].data = block + offsets_[unit.id];
      return;
    } catch (const PinningError&) {  // then each by itself, as far as it goes
    }
  }
  allocate_each(device, limit);
}

void WeightStore::allocate_each(IDevice& device, std::uint64_t limit) {
  const auto allocate_one = [&](UnitId id, bool needed) {
    const std::uint64_t bytes = units_[id].size(Encoding::native);
    Slab& slab = slabs_[id];
    slab.pinned = unpinned_bytes_ == 0 && pinned_bytes() + bytes <= limit;
    if (slab.pinned) {
      try {
        slab.data = pinned_.emplace_back(device, Buffer::Where::pinned, bytes, "weights").data();
        return;
      } catch (const PinningError&) {
        if (needed) throw;
        slab.pinned = false;
      }
    }
    if (needed)
      throw PinningError(
          "the embedding of {} bytes must be pinned, as kernels read it where it lies; only {} "
          "bytes "
          "of weights may be",
          bytes, limit);
    slab.data = allocate_unpinned(bytes);
  };
  const auto owner_of = [&](UnitId id) { return plan_.units[id].shares.value_or(id); };
  for (const UnitInfo& unit : units_)
    if (unit.kind == UnitKind::embedding) allocate_one(owner_of(unit.id), true);
  for (const UnitInfo& unit : units_)
    if (!slabs_[owner_of(unit.id)].data) allocate_one(unit.id, false);
  for (const UnitInfo& unit : units_) slabs_[unit.id] = slabs_[owner_of(unit.id)];
}

std::byte* WeightStore::allocate_unpinned(std::uint64_t bytes) {
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(kSlabAlignment, aligned(bytes, kSlabAlignment)));
  if (!memory) throw Error("the system has no {} bytes of memory left for weights", bytes);
  unpinned_bytes_ += bytes;
  return unpinned_.emplace_back(memory).get();
}

std::uint64_t WeightStore::pinned_bytes() const {
  std::uint64_t sum = 0;
  for (const Buffer& block : pinned_) sum += block.bytes();
  return sum;
}

void WeightStore::pack(const ITensorSource& source, const Options& options) {
  std::vector<Piece> pieces;
  Progress progress;
  for (const UnitInfo& info : units_) {
    const UnitSpec& unit = plan_.units[info.id];
    if (unit.shares) continue;
    for (const TensorSpec& tensor : unit.tensors) {
      const DType stored = source.stored_type(tensor);
      const std::uint64_t elements = tensor.elements(), size = size_of(tensor.dtype);
      std::byte* to = slabs_[info.id].data + tensor.offset;
      for (std::uint64_t first = 0; first < elements; first += kPieceElements) {
        const std::uint64_t n = std::min(kPieceElements, elements - first);
        pieces.push_back({&tensor, stored, first, n, to + first * size});
      }
      progress.total_bytes += elements * size;
    }
  }

  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> done_bytes{0};
  std::mutex guard;
  std::exception_ptr failure;
  const auto work = [&](bool reports) {
    std::vector<std::byte> staging;
    try {
      for (std::size_t i; (i = next.fetch_add(1)) < pieces.size();) {
        pack_piece(pieces[i], source, staging);
        done_bytes += pieces[i].n * size_of(pieces[i].tensor->dtype);
        if (reports && options.progress) {
          options.progress({done_bytes.load(), progress.total_bytes});
        }
      }
    } catch (...) {
      next = pieces.size();  // the others stop as well
      const std::scoped_lock lock(guard);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t threads =
        std::min<std::size_t>(options.threads ? options.threads : cores, pieces.size());
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work, false);
    work(true);
  }
  if (failure) std::rethrow_exception(failure);
  if (options.progress) options.progress({progress.total_bytes, progress.total_bytes});
}

ModelView WeightStore::view() const {
  return {units_, order_, plan_.layers, plan_.experts_per_layer, plan_.experts_per_token};
}

const std::byte* WeightStore::slab(UnitId unit, Encoding encoding) const {
  if (unit >= units_.size() || units_[unit].size(encoding) == 0) {
    throw Error("unit {} of {} has no slab encoded as {}", unit, units_.size(), name_of(encoding));
  }
  return slabs_[unit].data;
}

}  // namespace sluice
