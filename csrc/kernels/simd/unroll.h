/* Two words for the compilers, used by vector headers and bodies. */
#ifndef PYG_KERNELS_SIMD_UNROLL_H
#define PYG_KERNELS_SIMD_UNROLL_H

#define V_INLINE static inline __attribute__((always_inline))

/* Loops over a constant number of vectors must be unrolled, or their arrays live in memory: gcc
 * does it at -O2 only when told. */
#if defined(__clang__)
#define V_UNROLL _Pragma("clang loop unroll(full)")
#define V_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define V_UNROLL _Pragma("GCC unroll 32")
#define V_TWICE _Pragma("GCC unroll 2")
#endif

/* Keeps the loads of the next row behind this one: clang starts all rows at once and spills
 * otherwise. */
#define V_ROW_END __asm__ volatile("" ::: "memory")

#endif
