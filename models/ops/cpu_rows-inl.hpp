// Rows on all threads. Included once per instruction set, as Highway's own -inl headers are.
#if defined(SLUICE_CPU_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_ROWS_INL
#undef SLUICE_CPU_ROWS_INL
#else
#define SLUICE_CPU_ROWS_INL
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "core/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

// Elements that are worth a task of their own.
inline constexpr std::size_t kTaskElements = 16384;

// Calls row(r) for each of `rows` rows of `columns` elements.
HWY_INLINE void for_rows(std::size_t rows, std::size_t columns, TaskRef row) {
  const std::size_t per_task =
      HWY_MAX(std::size_t{1}, kTaskElements / HWY_MAX(std::size_t{1}, columns));
  parallel_for((rows + per_task - 1) / per_task, [&](std::size_t task) HWY_ATTR {
    const std::size_t end = HWY_MIN(rows, (task + 1) * per_task);
    for (std::size_t r = task * per_task; r < end; ++r) row(r);
  });
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
