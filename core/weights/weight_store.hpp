// All of a model's weights in host memory, one contiguous slab per unit and encoding; pinned, as far
// as the system allows.
#pragma once
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/device/device.hpp"
#include "core/weights/slab_layout.hpp"

namespace sluice {

// Some of the encodings.
class EncodingSet {
 public:
  constexpr EncodingSet() = default;
  constexpr EncodingSet(Encoding one) { add(one); }  // implicit: one is a set, too
  constexpr void add(Encoding e) { bits_ |= 1u << static_cast<unsigned>(e); }
  constexpr bool has(Encoding e) const { return (bits_ >> static_cast<unsigned>(e) & 1u) != 0; }
  friend constexpr bool operator==(const EncodingSet&, const EncodingSet&) = default;

 private:
  std::uint32_t bits_ = 0;
};

class WeightStore {
 public:
  struct Progress {
    std::uint64_t done_bytes = 0, total_bytes = 0;
  };
  struct Options {
    DType dtype = DType::bf16;                      // of activations; see ModelLayout
    unsigned threads = 0;                           // 0: all cores
    std::function<void(const Progress&)> progress;  // on the caller's thread, last when all is done
    std::optional<std::uint64_t> pinned_limit{};    // bytes of slabs that may be pinned
    // What each unit, by its id, is stored in; empty: all of them natively. The embedding is stored
    // natively whatever this says, and the head with it where they are one.
    std::vector<EncodingSet> encodings{};
  };

  // Packs `plan` from `source`, quantising where an encoding asks for it. Host memory holds each unit
  // once in each encoding asked for, and nothing else of the model: pinned as one block, or, where
  // the limit or the system forbids that, slab by slab until it does again; the others lie in
  // ordinary memory. On a device that does not execute, nothing is read: slabs are addresses with
  // sizes. Throws InputError when a tensor is missing or has another shape, when joined ones differ
  // in type, when one cannot be quantised or comes in another encoding, or when the limit leaves no
  // room for the embedding, which kernels read where it lies; PinningError when the system refuses
  // to pin that.
  WeightStore(IDevice& device, ModelPlan plan, const ITensorSource& source, const Options& options);

  ModelView view() const { return layout_.view(); }
  const ModelLayout& layout() const { return layout_; }
  const ModelPlan& plan() const { return layout_.plan(); }
  const UnitSpec& spec(UnitId unit) const { return plan().units[unit]; }
  // Host address of the slab, aligned to 256 bytes. Throws Error when it is not stored so. A tied
  // embedding's is the head's.
  const std::byte* slab(UnitId unit, Encoding encoding) const;
  bool stores(UnitId unit, Encoding encoding) const;
  bool is_pinned(UnitId unit, Encoding encoding) const { return of(unit, encoding).pinned; }
  std::uint64_t pinned_bytes() const;
  std::uint64_t unpinned_bytes() const { return unpinned_bytes_; }

 private:
  struct Slab {
    std::byte* data = nullptr;  // null: not stored
    bool pinned = true;
  };
  // One to be allocated.
  struct Wanted {
    UnitId unit = 0;
    Encoding encoding = Encoding::native;
    std::uint64_t bytes = 0;
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::vector<Wanted> wanted(const std::vector<EncodingSet>& encodings,
                             const ITensorSource& source) const;
  [[noreturn]] void refuse(UnitId unit, Encoding encoding, const ITensorSource& source) const;
  void allocate(IDevice& device, std::span<const Wanted> wanted, const Options& options);
  void allocate_each(IDevice& device, std::span<const Wanted> wanted, std::uint64_t limit);
  std::byte* allocate_unpinned(std::uint64_t bytes);

  Slab& of(UnitId unit, Encoding encoding) {
    return slabs_[unit][static_cast<std::size_t>(encoding)];
  }
  const Slab& of(UnitId unit, Encoding encoding) const {
    return slabs_[unit][static_cast<std::size_t>(encoding)];
  }

  ModelLayout layout_;
  std::vector<Buffer> pinned_;
  std::vector<std::unique_ptr<std::byte, Free>> unpinned_;
  std::uint64_t unpinned_bytes_ = 0;
  std::vector<std::array<Slab, kEncodings>> slabs_;  // index: UnitId
};

}  // namespace sluice
