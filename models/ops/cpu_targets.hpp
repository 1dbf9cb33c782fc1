// The instruction sets that the CPU kernels are built for; include it before any Highway header.
//
// On x86: SSE4.2 (with AES, as Highway groups it: processors since about 2010), AVX2 and AVX-512.
// The portable EMU128 below them is left out: its kernels would be many times slower than a model
// can bear, and took longer to build, most of all under sanitizers, than all others together.
// Elsewhere: NEON, or EMU128. The kernels need vectors of at least 128 bits whose size is known when
// compiling, so the scalar target and scalable vectors are left out everywhere. SSSE3 and the
// refinements of AVX-512 would add build time and no speed here.
#pragma once
#include <hwy/detect_compiler_arch.h>

#if HWY_ARCH_X86
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
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
