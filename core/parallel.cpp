#include "core/parallel.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

// Suppressing oneTBB's frames instead would also hide a kernel that reads weights too early.
#if defined(__SANITIZE_THREAD__)
#define SLUICE_SERIAL_TASKS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_SERIAL_TASKS 1
#endif
#endif

namespace sluice {

#if defined(SLUICE_SERIAL_TASKS)

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

}  // namespace sluice
