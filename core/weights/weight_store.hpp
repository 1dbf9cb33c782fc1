// All of a model's weights in host memory, one contiguous slab per unit and encoding; pinned, as far
// as the system allows.
#pragma once
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/device/device.hpp"
#include "core/weights/tensor_source.hpp"
#include "core/weights/unit_spec.hpp"

namespace sluice {

class WeightStore {
 public:
  struct Progress {
    std::uint64_t done_bytes = 0, total_bytes = 0;
  };
  struct Options {
    // Activation type: stored types are kept when it is f32, else tensors of another type are
    // cast to it while packing.
    DType dtype = DType::bf16;
    unsigned threads = 0;                           // 0: all cores
    std::function<void(const Progress&)> progress;  // on the caller's thread, last when all is done
    std::optional<std::uint64_t> pinned_limit{};    // bytes of slabs that may be pinned
  };

  // Packs `plan` from `source`. Host memory holds the model once, whatever its size: pinned as one
  // block, or, where the limit or the system forbids that, slab by slab until it does again; the
  // others lie in ordinary memory. On a device that does not execute, nothing is read: slabs are
  // addresses with sizes. Throws InputError when a tensor is missing or has another shape, or when
  // joined tensors differ in type; PinningError when not even the embedding can be pinned, which
  // kernels read where it lies.
  WeightStore(IDevice& device, ModelPlan plan, const ITensorSource& source, const Options& options);

  ModelView view() const;
  const ModelPlan& plan() const { return plan_; }
  const UnitSpec& spec(UnitId unit) const { return plan_.units[unit]; }
  // Host address of the slab, aligned to 256 bytes; every encoding that UnitInfo gives a size for
  // has one. A tied embedding's is the head's, its size that of the one tensor it shares.
  const std::byte* slab(UnitId unit, Encoding encoding) const;
  bool is_pinned(UnitId unit) const { return slabs_[unit].pinned; }
  std::uint64_t pinned_bytes() const;
  std::uint64_t unpinned_bytes() const { return unpinned_bytes_; }

 private:
  struct Slab {
    std::byte* data = nullptr;
    bool pinned = true;
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  void lay_out(const ITensorSource& source, DType dtype);
  void allocate(IDevice& device, const Options& options);
  void allocate_each(IDevice& device, std::uint64_t limit);
  std::byte* allocate_unpinned(std::uint64_t bytes);
  void pack(const ITensorSource& source, const Options& options);

  ModelPlan plan_;
  std::vector<UnitInfo> units_;
  std::vector<UnitId> order_;
  std::vector<std::uint64_t> offsets_;  // of native slabs, were they one block, by unit
  std::uint64_t slab_bytes_ = 0;        // of all slabs and the gaps between them
  std::vector<Buffer> pinned_;
  std::vector<std::unique_ptr<std::byte, Free>> unpinned_;
  std::uint64_t unpinned_bytes_ = 0;
  std::vector<Slab> slabs_;  // native ones, by unit
};

}  // namespace sluice
