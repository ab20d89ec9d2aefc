/* The kernel table: one function pointer per slot, and the contract of each group of slots.
 *
 * Ops call kernels only through `pyg_k->slot` or through the dtype look-ups below; nothing here
 * allocates, locks or fails. All lengths are in elements and may be 0. Pointers need only the
 * alignment of their element (1 byte for packed formats). A kernel reads exactly its operands:
 * never a byte past the end.
 *
 * to_f32_X, from_f32_X: every element converted, one rounding, bit-identical in every instruction
 *     set and to the scalar code in formats/. Block formats need n to be a multiple of the block.
 *     src and dst do not overlap (to_f32_f32 and from_f32_f32 may be called in place). FTZ/DAZ need
 *     not be off (but for blocks to encode whose largest value is below 2^-118: their scale is 0 in
 *     F16 anyway). A block whose scale is NaN decodes to NaN, of no particular sign and payload.
 * dot_X: sum over n of w[i] * x[i], w in format X, x in F32, accumulated in F32. Error class DOT:
 *     within n_eff * 2^-24 * sum |w_i x_i| of the exact sum (n_eff: n for generic, n/8 + 8 for wide
 *     sets). A NaN code in w gives NaN. n = 0 gives 0. Block formats need n % block == 0.
 * mv_X: y[r] = dot_X(n, w + r * w_stride bytes, x) for r in 0..rows-1, bit for bit that dot,
 *     whatever the row count: results do not depend on how rows were shared out.
 * pack_panel16: panel[i * 16 + r] = rows[r * ld + i] for r < n_rows (1..16), i < k; columns r >=
 *     n_rows are zeros. `ld` in floats.
 * gemm_tile: y[t * ldy + c] (=, or += when accumulate) sum over i < k of x[t * ldx + i] * panel[i *
 *     ldp + c] for t < m, c < n_cols (1..16). panel rows hold 16 readable floats whatever n_cols is
 *     (ldp >= 16 floats); only n_cols of y are read or written. The sum runs over i in order, one
 *     accumulator an output, so the bits do not depend on m or on the split into calls over t. When
 *     accumulate is 0, y is not read.
 * add, sub, mul, div, scale (s * x + bias): elementwise; y may be exactly one of the inputs. All
 *     but scale are bit-identical everywhere.
 * add_f16, sub_f16, mul_f16, div_f16, scale_f16: the same on F16 codes, computed in F32 and rounded
 *     once: the bits of to_f32_f16, the slot, from_f32_f16.
 * sqr, sqrt, neg, abs, relu (x < 0 ? 0 : x), step (x > 0 ? 1 : 0), clamp (min <= max), leaky_relu
 *     (x < 0 ? slope * x : x): elementwise, y may be x; bit-identical everywhere. NaN stays NaN,
 *     but step(NaN) = 0.
 * exp, log, sin, cos, tanh, sigmoid, softplus, silu, gelu, gelu_erf, gelu_quick: elementwise, y may
 *     be x. Error classes, in units of 2^-23 of the result, plus 2^-149 where that is denormal:
 *         exp, log, tanh, softplus 2; sin, cos 2 (beyond |x| = 2^20 by libm); sigmoid, silu 3;
 *         gelu_erf 5;
 *         gelu 4 + 2 |z|, gelu_quick 4 + |z| (at x < 0), z being what exp is taken of, which is
 *             rounded: 2 sqrt(2 / pi) (x + 0.044715 x^3) and 1.702 x;
 *     denormal results of silu, gelu and gelu_quick within |x| 2^-149. NaN stays NaN; infinities
 *     give the limits (silu and its like of -inf: 0), sin and cos NaN.
 * swiglu, geglu, geglu_erf, geglu_quick, reglu: silu, gelu ... relu of gate, times up: their error
 *     and one rounding more; y may be exactly one of the inputs.
 * decay_add: y = y * r + x in double, both operations rounded.
 * sum, sum_sqr: the sum of x and of x^2, added up in double (x^2 is exact there); only the order of
 *     the additions differs between sets. sum_sqr_f16: sum_sqr of F16 codes, within 2^-23 of it.
 * scale_wide: y = x * s within 2 units, s >= 0 and maybe outside of what F32 holds: up to 2^160,
 *     down to 2^-160, 0, infinity and NaN. y may be x.
 * argmax: index of the first of the largest elements, or of the first NaN when there is one. n = 0
 *     gives -1.
 * norm: y = (x - m) / sqrt(v + eps), m the mean and v the mean of (x - m)^2, both kept in double. y
 *     may be x.
 * fwht: the Walsh-Hadamard transform of x * scale in natural order, y[i] = sum over j of
 *     (-1)^popcount(i & j) * scale * x[j]; n a power of two. y may be x. Bit-identical everywhere.
 * soft_max: y = softmax(x * scale + mask) over the elements of x and one more score, `sink`, which
 *     has no result (-infinity: none); mask may be NULL. A position whose mask is -inf gives
 *     exactly 0 and never contributes, whatever x holds there (NaN included); all masked gives
 *     zeros. y may be x.
 * rope_norm: rotates the pairs (x[2i], x[2i+1]); rope_neox: the pairs (x[i], x[i + n_pairs]); by
 *     the angle whose cosine and sine are cos[i], sin[i]: (a c - b s, a s + b c). y may be x. Bits
 *     do not depend on n_pairs.
 * attn_softmax: one online-softmax step of one query row over a tile of n scores. s = s * scale +
 *     mask (NULL: no mask; -inf there removes the cell whatever s holds), new max = max(*max,
 *     s...), s[i] becomes exp(s[i] - new max), *sum becomes *sum * r + sum of s, *max the new max;
 *     returns r = exp(old max - new max), by which the caller rescales its output row. While every
 *     cell seen is masked, *max stays -inf, s is zeros and r is 1. Start with *max = -inf, *sum =
 *     0.
 * all_finite: 1 when no element is NaN or infinite. */
#ifndef PYG_KERNELS_KERNELS_H
#define PYG_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

typedef struct pyg_kernel_table {
    void (*none)(void); /* the first slot: offset 0 stands for "no kernel" in a dtype's row */
#define PYG_KERNEL(slot, ret, args) ret(*slot) args;
#include "kernels/kernel_table.inc"
#undef PYG_KERNEL
} pyg_kernel_table;

typedef void (*pyg_to_f32_fn)(const void *src, float *dst, int64_t n);
typedef void (*pyg_from_f32_fn)(const float *src, void *dst, int64_t n);
typedef float (*pyg_dot_fn)(int64_t n, const void *w, const float *x);
typedef void (*pyg_mv_fn)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                          float *y);

/* The table in use. Points to the generic table until pyg_isa_init ran. */
extern const pyg_kernel_table *pyg_k;
/* Every slot in plain C. */
extern const pyg_kernel_table pyg_kernels_generic;

/* The kernels of a dtype in the table in use; NULL where the dtype's row says `none`. */
pyg_to_f32_fn pyg_to_f32(pyg_dtype dtype);
pyg_from_f32_fn pyg_from_f32(pyg_dtype dtype);
pyg_dot_fn pyg_dot(pyg_dtype dtype);
pyg_mv_fn pyg_mv(pyg_dtype dtype);

/* What kernels/direct_table.inc names for a slot and a dtype, to be cast to its type; NULL where
 * there is no row. */
#define PYG_SLOT(slot) offsetof(pyg_kernel_table, slot)
typedef void (*pyg_any_fn)(void);
pyg_any_fn pyg_direct(size_t slot, pyg_dtype dtype);

/* Fill functions of the spines (isa_*.c): each overwrites the slots it improves. */
void pyg_fill_generic(pyg_kernel_table *table);
#if defined(__x86_64__) || defined(__i386__)
void pyg_fill_avx2(pyg_kernel_table *table);
#endif

#endif
