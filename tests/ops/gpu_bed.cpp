#include <algorithm>
#include <memory>

#include "core/device/make_device.hpp"
#include "tests/ops/bed.hpp"

namespace sluice::test {
namespace {

// As in models/ops/cuda_kernels.cpp: rows that the matrix-vector kernels take, and what the rows of
// larger products are padded to.
constexpr std::uint32_t kFewRows = 16;
constexpr std::uint32_t kPaddedRows[] = {64, 256, 1024, 2048};

struct Gpu {
  std::unique_ptr<IDevice> device = make_device({.kind = DeviceKind::cuda});
  StreamId stream = device->make_stream(Resource::compute, "kernels");
  std::unique_ptr<IKernels> kernels = make_kernels(*device);
};

// Never taken down: tensors of static tests may outlive everything else, and the driver frees.
Gpu& gpu() {
  static Gpu& one = *new Gpu;
  return one;
}

// Host memory that kernels reach over the link.
class Pinned final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    return gpu().device->allocate_pinned(bytes, "a test's memory");
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override {
    gpu().device->release_pinned(memory);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

// A pool, as each pinned block is a mapping of its own; made when it is first used, since the GPU may
// not be there when the program only lists its tests.
class Pool final : public std::pmr::memory_resource {
  static std::pmr::memory_resource& pool() {
    static auto& pinned = *new Pinned;
    static auto& pool = *new std::pmr::unsynchronized_pool_resource(
        {.max_blocks_per_chunk = 64, .largest_required_pool_block = 4u << 20}, &pinned);
    return pool;
  }
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return pool().allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    pool().deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

[[maybe_unused]] const auto* const before = std::pmr::set_default_resource(new Pool);

}  // namespace

void run_on_bed(const std::function<void(const IKernels&, NativeStream)>& work) {
  Gpu& on = gpu();
  // `work` is called at once, so a reference is as good as a value.
  on.device->enqueue(on.stream, {.name = "tested"},
                     [&on, &work](NativeStream stream) { work(*on.kernels, stream); });
  on.device->sync(on.device->record(on.stream));
}

void for_each_target(const std::function<void(const std::string&)>& body) { body("cuda"); }

bool dequantises(const LinearArgs& args) {
  return args.encoding != Encoding::native && product_family(args) >= 2;
}

int product_family(const LinearArgs& args) {
  if (args.type == DType::f32 || args.type != args.weight_type || args.k % 8 != 0) return 0;
  if (args.rows <= kFewRows) {
    const std::uint32_t piece = args.encoding == Encoding::native ? 8
                                : args.encoding == Encoding::int8 ? 16
                                                                  : 32;
    return args.k % piece == 0 ? 1 : 0;
  }
  if (args.n % 8 != 0) return 0;
  return 2 + static_cast<int>(std::ranges::lower_bound(kPaddedRows, args.rows) - kPaddedRows);
}

// Tiles of a prompt round a row's weights to the activation type, as the reference does.
double attention_error() { return 0x1p-24 * 128; }

}  // namespace sluice::test
