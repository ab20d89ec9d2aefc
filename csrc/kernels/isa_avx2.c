/* The AVX2 spine: AVX2, FMA and F16C together. Only the functions below are compiled for them; what
 * is included before the region is not, and everything in it is static but the fill function. */
#include "kernels/kernels.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "formats/blocks.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define K(slot) slot##__avx2

#include "kernels/simd/avx2_blocks.h"

#include "kernels/body/convert.h"
#include "kernels/body/dot.h"
#include "kernels/body/dot_f8_f16c.h"
#include "kernels/body/elementwise.h"
#include "kernels/body/gemm_tile.h"
#include "kernels/body/norm.h"
#include "kernels/body/rope.h"
#include "kernels/body/softmax.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

void pyg_fill_avx2(pyg_kernel_table *table) {
#define PYG_KERNEL(slot, ret, args) table->slot = K(slot);
#include "kernels/kernel_table.inc"
#undef PYG_KERNEL
}

#endif
