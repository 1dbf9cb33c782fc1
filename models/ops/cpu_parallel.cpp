#include "models/ops/cpu_parallel.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <array>
#include <memory>
#include <new>

#if defined(__SANITIZE_THREAD__)
#define SLUICE_SERIAL_KERNELS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_SERIAL_KERNELS 1
#endif
#endif

namespace sluice::cpu {
namespace {

constexpr std::size_t kAlignment = 128;

struct Free {
  void operator()(float* data) const { operator delete[](data, std::align_val_t{kAlignment}); }
};

struct Block {
  std::unique_ptr<float[], Free> data;
  std::size_t floats = 0;
};

}  // namespace

#if defined(SLUICE_SERIAL_KERNELS)

void parallel_for(std::size_t count, TaskRef task) {
  for (std::size_t i = 0; i < count; ++i) task(i);
}

std::size_t thread_count() { return 1; }

#else

void parallel_for(std::size_t count, TaskRef task) {
  if (count == 1) {
    task(0);
    return;
  }
  tbb::parallel_for(std::size_t{0}, count, [task](std::size_t i) { task(i); });
}

std::size_t thread_count() {
  return static_cast<std::size_t>(tbb::this_task_arena::max_concurrency());
}

#endif

float* scratch(Scratch purpose, std::size_t floats) {
  thread_local std::array<Block, static_cast<std::size_t>(Scratch::count)> blocks;
  Block& block = blocks[static_cast<std::size_t>(purpose)];
  if (block.floats < floats) {
    block = {};
    block.data.reset(new (std::align_val_t{kAlignment}) float[floats]);
    block.floats = floats;
  }
  return block.data.get();
}

}  // namespace sluice::cpu
