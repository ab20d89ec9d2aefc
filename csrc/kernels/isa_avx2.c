/* The AVX2 spine: AVX2, FMA and F16C together. Only the functions below are compiled for them; what
 * is included before the region is not, and everything in it is static but the fill function. */
#include "kernels/kernels.h"

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "formats/blocks.h"
#include "formats/fp4.h"
#include "formats/k_quants.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define K(slot) slot##__avx2

#include "kernels/simd/avx2_blocks.h"
#include "kernels/simd/avx2_superblocks.h"

#include "kernels/body/convert.h"
#include "kernels/body/direct.h"
#include "kernels/body/dot.h"
#include "kernels/body/dot_f8_shift.h"
#include "kernels/body/elementwise.h"
#include "kernels/body/fwht.h"
#include "kernels/body/gemm_tile.h"
#include "kernels/body/reduce.h"
#include "kernels/body/rope.h"
#include "kernels/body/softmax.h"
#include "kernels/body/superblocks.h"
#include "kernels/body/unary.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* AMD cores multiply denormals at full speed, others trap into microcode. CPUID leaf 0 spells the
 * vendor in ebx, edx, ecx; Hygon makes AMD's cores. */
static int denormals_are_free(void) {
    uint32_t top, name[3];
    if (!__get_cpuid(0, &top, &name[0], &name[2], &name[1])) return 0;
    return memcmp(name, "AuthenticAMD", 12) == 0 || memcmp(name, "HygonGenuine", 12) == 0;
}

void pyg_fill_avx2(pyg_kernel_table *table) {
#define PYG_KERNEL(slot, ret, args) table->slot = K(slot);
#include "kernels/kernel_table.inc"
#undef PYG_KERNEL
    if (denormals_are_free()) {
        table->dot_f8_e4m3 = K(dot_f8_e4m3_shift);
        table->mv_f8_e4m3 = K(mv_f8_e4m3_shift);
    }
}

#endif
