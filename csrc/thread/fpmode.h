/* The floating-point mode of a job: denormals kept, round to nearest, no traps. Used by pool.c
 * around tasks.
 *
 * The exact E4M3 decoders pass through denormal numbers, and a caller (a plug-in built with
 * -ffast-math, say) may have switched them off. */
#ifndef PYG_THREAD_FPMODE_H
#define PYG_THREAD_FPMODE_H

#include <stdint.h>

#if defined(__SSE__)

#include <xmmintrin.h>

/* MXCSR:  15   14-13    12-7    6    5-0
 *         FTZ  rounding masks   DAZ  sticky flags */
static inline uint64_t pyg_fp_enter(void) {
    const unsigned old = _mm_getcsr();
    const unsigned want = (old & ~0xE040u) | 0x1F80u;
    if (want != old) _mm_setcsr(want);
    return old;
}

static inline void pyg_fp_leave(uint64_t old) { _mm_setcsr((unsigned)old); }

#elif defined(__aarch64__)

/* FPCR:  24  23-22     19    15, 12-8  0
 *        FZ  rounding  FZ16  traps     FIZ */
static inline uint64_t pyg_fp_enter(void) {
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    const uint64_t want = old & ~(uint64_t)0x1C89F01;
    if (want != old) __asm__ volatile("msr fpcr, %0" : : "r"(want));
    return old;
}

static inline void pyg_fp_leave(uint64_t old) { __asm__ volatile("msr fpcr, %0" : : "r"(old)); }

#else

static inline uint64_t pyg_fp_enter(void) { return 0; }
static inline void pyg_fp_leave(uint64_t old) { (void)old; }

#endif

#endif
