// The instruction sets that the CPU kernels are built for; include it before any Highway header.
//
// The kernels need vectors of 128 bits at least and of a size known when compiling. So the lowest
// target is the portable EMU128 (or SSE2, NEON), never one lane, and scalable vectors are left out.
// SSSE3 and the refinements of AVX-512 would add build time and no speed here.
#pragma once

// Highway avoids EMU128 with g++ before 12.3 because of a wrong 16-bit high multiplication (GCC bug
// 106322), which the kernels do not use.
#define HWY_BROKEN_EMU128 0
#define HWY_DISABLED_TARGETS                                                               \
  (HWY_SSSE3 | HWY_AVX3_DL | SLUICE_HWY_NEWER_TARGETS | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128 | HWY_RVV)

#include <hwy/detect_targets.h>

// Targets that only newer versions of Highway know. The list above is expanded where it is used.
#if defined(HWY_AVX3_ZEN4) && defined(HWY_AVX3_SPR)
#define SLUICE_HWY_NEWER_TARGETS (HWY_AVX3_ZEN4 | HWY_AVX3_SPR)
#elif defined(HWY_AVX3_ZEN4)
#define SLUICE_HWY_NEWER_TARGETS HWY_AVX3_ZEN4
#else
#define SLUICE_HWY_NEWER_TARGETS 0
#endif
