// All of a model's weights in pinned host memory, one contiguous slab per unit and encoding.
#pragma once
#include <functional>
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
  };

  // Packs `plan` from `source`. Host memory holds the model once, whatever its size. On a device
  // that does not execute, nothing is read: slabs are addresses with sizes. Throws InputError when
  // a tensor is missing or has another shape, or when joined tensors differ in type.
  WeightStore(IDevice& device, ModelPlan plan, const ITensorSource& source, const Options& options);

  ModelView view() const;
  const ModelPlan& plan() const { return plan_; }
  const UnitSpec& spec(UnitId unit) const { return plan_.units[unit]; }
  // Host address of the slab, aligned to 256 bytes; every encoding that UnitInfo gives a size for
  // has one. A tied embedding's is the head's, its size that of the one tensor it shares.
  const std::byte* slab(UnitId unit, Encoding encoding) const;
  std::uint64_t pinned_bytes() const { return memory_.bytes(); }

 private:
  void lay_out(const ITensorSource& source, DType dtype);
  void pack(const ITensorSource& source, const Options& options);

  ModelPlan plan_;
  std::vector<UnitInfo> units_;
  std::vector<UnitId> order_;
  std::vector<std::uint64_t> offsets_;  // of native slabs in memory_, by unit
  std::uint64_t slab_bytes_ = 0;        // of all slabs and the gaps between them
  Buffer memory_;
};

}  // namespace sluice
