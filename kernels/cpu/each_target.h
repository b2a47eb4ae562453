// Compiles one file of loops once for each instruction set, side by side:
//
//   #define FLUVIAL_TARGET_FILE "kernels/cpu/vector_loops_impl.h"
//   #include "kernels/cpu/each_target.h"
//
// gives the functions of that file in the namespaces cpu::baseline, cpu::avx2 and cpu::avx512 (FLUVIAL_TARGET in the
// file). The file includes nothing itself: the functions that it calls are included before and always inlined, so they
// take on the instruction set of the loop around them. A library's inline function must never be compiled for more than
// every machine can run. FLUVIAL_TARGET_AVX2 or FLUVIAL_TARGET_AVX512 is defined while the file is read for that
// target, for the few loops that need intrinsics. FLUVIAL_INDEPENDENT marks a loop whose output may be one of its
// inputs, at the same element: without it an overlap found at run time runs the loop one element at a time.

#if !defined(FLUVIAL_INDEPENDENT)
#if defined(__clang__)
#define FLUVIAL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define FLUVIAL_INDEPENDENT _Pragma("GCC ivdep")
#else
#define FLUVIAL_INDEPENDENT
#endif
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // a build without the vectoriser, such as a sanitized one
#endif

#define FLUVIAL_TARGET baseline
#include FLUVIAL_TARGET_FILE
#undef FLUVIAL_TARGET

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt,f16c")
#endif
#define FLUVIAL_TARGET avx2
#define FLUVIAL_TARGET_AVX2 1
#include FLUVIAL_TARGET_FILE
#undef FLUVIAL_TARGET_AVX2
#undef FLUVIAL_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt,f16c")
#endif
#define FLUVIAL_TARGET avx512
#define FLUVIAL_TARGET_AVX512 1
#include FLUVIAL_TARGET_FILE
#undef FLUVIAL_TARGET_AVX512
#undef FLUVIAL_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#undef FLUVIAL_TARGET_FILE
