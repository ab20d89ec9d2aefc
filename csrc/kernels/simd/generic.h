/* The vector layer, width 1: plain C. The bodies in kernels/body are written over these names.
 *
 * Every vector header defines the same names:
 *   v_f32, V_WIDTH            the vector and its lanes; V_BLOCK vectors hold a block of 32
 *   v_load_n, v_store_n       the first n < V_WIDTH lanes; v_load_n fills the rest with zeros
 *   v_load_or                 the same, the rest filled from a vector
 *   v_max, v_min (a, b)       b when either is NaN or both are equal, as the x86 instructions do
 *   v_any                     some lane of the mask is set
 *   v_wide                    V_WIDTH sums in double; v_wide_square adds x * x, exact in double
 *   v_fwht                    the Walsh-Hadamard transform of the lanes
 *   v_ldexp(x, t)             x * 2^k, t = k + V_ROUND: k sits in the low bits of t
 *   v_flip(y, s)              y, negated where the sign bit of s is set
 *   v_coarse(a)               a without its last 12 significant bits
 *   v_split(x, &k)            x = m * 2^k with m in [sqrt 1/2, sqrt 2), for positive normal x
 *   v_quarters(x, first, ..)  x less k quarter turns, |result| <= pi / 4, for |x| <= 2^20; `odd`
 *                             and `sign` (0 or -0) are bits 0 and 1 of k + first
 *   v_load_f16 ...            V_WIDTH codes decoded; v_store_f16 ... rounded once and stored
 *   v_block_q8_0 ...          a block's quants, and its scale (for q4_1: its values, and 1)
 *   v_super_q4_k ...          a block of groups made ready; v_group_q4_k its group g, 32 values
 *   v_rotate                  V_PAIRS adjacent pairs rotated
 *   v_transpose16             16 rows, V_WIDTH columns of them to rows of 16 floats
 * Everything is static: nothing compiled for one instruction set can be linked into another's code.
 */
#ifndef PYG_KERNELS_SIMD_GENERIC_H
#define PYG_KERNELS_SIMD_GENERIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "formats/bf16.h"
#include "formats/blocks.h"
#include "formats/f16.h"
#include "formats/f8_e4m3.h"
#include "formats/fp4.h"
#include "formats/k_quants.h"
#include "kernels/simd/unroll.h"

typedef float v_f32;
typedef int v_mask;

enum { V_WIDTH = 1, V_BLOCK = 32, V_PAIRS = 1 };

typedef struct v_super {
    float y[PYG_K_ELEMENTS];
} v_super;

static inline v_f32 v_load(const float *p) { return *p; }
static inline v_f32 v_load_n(const float *p, int n) { return n > 0 ? *p : 0.0f; }
static inline v_f32 v_load_or(const float *p, int n, v_f32 rest) { return n > 0 ? *p : rest; }
static inline void v_store(float *p, v_f32 a) { *p = a; }
static inline void v_store_n(float *p, v_f32 a, int n) {
    if (n > 0) *p = a;
}
static inline void v_copy(const float *from, float *to) { memcpy(to, from, sizeof *to); }
V_INLINE void v_prefetch(const void *p) { (void)p; }

static inline v_f32 v_set1(float x) { return x; }
static inline v_f32 v_bits(uint32_t bits) { return pyg_float_of(bits); }
static inline float v_first(v_f32 a) { return a; }
static inline v_f32 v_add(v_f32 a, v_f32 b) { return a + b; }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return a - b; }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return a * b; }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return a / b; }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return a * b + c; }
static inline v_f32 v_max(v_f32 a, v_f32 b) { return a > b ? a : b; }
static inline v_f32 v_min(v_f32 a, v_f32 b) { return a < b ? a : b; }
static inline v_f32 v_abs(v_f32 a) { return pyg_float_of(pyg_bits_of(a) & 0x7FFFFFFFu); }
static inline v_f32 v_neg(v_f32 a) { return pyg_float_of(pyg_bits_of(a) ^ 0x80000000u); }
static inline v_f32 v_flip(v_f32 y, v_f32 s) {
    return pyg_float_of(pyg_bits_of(y) ^ (pyg_bits_of(s) & 0x80000000u));
}
static inline v_f32 v_coarse(v_f32 a) { return pyg_float_of(pyg_bits_of(a) & 0xFFFFF000u); }
static inline v_f32 v_sqrt(v_f32 a) { return sqrtf(a); }
static inline v_mask v_eq(v_f32 a, v_f32 b) { return a == b; }
static inline v_mask v_lt(v_f32 a, v_f32 b) { return a < b; }
static inline v_f32 v_select(v_mask m, v_f32 yes, v_f32 no) { return m ? yes : no; }
static inline int v_all(v_mask m) { return m; }
static inline float v_hsum(v_f32 a) { return a; }
static inline float v_hmax(v_f32 a) { return a; }
static inline int v_any(v_mask m) { return m; }

typedef double v_wide;
static inline v_wide v_wide_zero(void) { return 0.0; }
static inline v_wide v_wide_add(v_wide s, v_f32 x) { return s + (double)x; }
static inline v_wide v_wide_square(v_wide s, v_f32 x) { return s + (double)x * (double)x; }
static inline double v_wide_sum(v_wide s) { return s; }
static inline v_wide v_wide_load(const double *p) { return *p; }
static inline void v_wide_store(double *p, v_wide s) { *p = s; }
static inline v_wide v_wide_scale(v_wide s, double r) { return s * r; }
static inline double v_sqrt1_wide(double x) { return sqrt(x); }
static inline v_f32 v_fwht(v_f32 a) { return a; }

#define V_ROUND 0x1.8p23f

/* Unsigned steps wrap where a signed one would be undefined (x is NaN then, and so is the result).
 */
static inline v_f32 v_ldexp(v_f32 x, v_f32 t) {
    const int32_t k = (int32_t)(pyg_bits_of(t) - pyg_bits_of(V_ROUND));
    const int32_t half = k / 2;
    const float a = pyg_float_of(((uint32_t)half + 127u) << 23);
    const float b = pyg_float_of(((uint32_t)(k - half) + 127u) << 23);
    return x * a * b; /* two steps: 2^k alone may overflow where x * 2^k does not */
}

#define V_SQRT_HALF 0x3F3504F3u

static inline v_f32 v_split(v_f32 x, v_f32 *k) {
    const uint32_t bits = pyg_bits_of(x), one = 127u << 23;
    const uint32_t e = (bits - V_SQRT_HALF + one) >> 23; /* k + 127 */
    *k = (float)((int32_t)e - 127);
    return pyg_float_of(bits - ((e - 127u) << 23));
}

/* pi / 2 in two parts for doubles: the first has 33 bits, so that a k of 20 bits times it is exact
 * (Cody & Waite 1980). */
#define V_TWO_OVER_PI 0x1.45f306dc9c883p-1
#define V_HALF_PI_1 0x1.921fb544p0
#define V_HALF_PI_2 0x1.0b4611a626331p-34
#define V_ROUND64 0x1.8p52

static inline v_f32 v_quarters(v_f32 x, int first, v_mask *odd, v_f32 *sign) {
    const double t = (double)x * V_TWO_OVER_PI + V_ROUND64, k = t - V_ROUND64;
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    const uint32_t quarter = (uint32_t)bits + (uint32_t)first;
    *odd = (int)(quarter & 1u);
    *sign = pyg_float_of((quarter & 2u) << 30);
    return (float)(((double)x - k * V_HALF_PI_1) - k * V_HALF_PI_2);
}

static inline uint16_t v_u16(const char *p) {
    uint16_t code;
    memcpy(&code, p, sizeof code);
    return code;
}

static inline v_f32 v_load_f32(const char *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline v_f32 v_load_f16(const char *p) { return pyg_f16_decode(v_u16(p)); }
static inline v_f32 v_load_bf16(const char *p) { return pyg_bf16_decode(v_u16(p)); }
static inline v_f32 v_load_f8_e4m3(const char *p) { return pyg_f8_e4m3_decode((uint8_t)*p); }

static inline void v_store_f16(char *p, v_f32 a) {
    const uint16_t code = pyg_f16_encode(a);
    memcpy(p, &code, sizeof code);
}
static inline void v_store_bf16(char *p, v_f32 a) {
    const uint16_t code = pyg_bf16_encode(a);
    memcpy(p, &code, sizeof code);
}
static inline void v_store_f8_e4m3(char *p, v_f32 a) { *p = (char)pyg_f8_e4m3_encode(a); }

static inline v_f32 v_block_q8_0(const char *block, v_f32 *q) {
    pyg_q8_0_decode(block, q);
    return 1.0f;
}
static inline v_f32 v_block_q4_0(const char *block, v_f32 *q) {
    pyg_q4_0_decode(block, q);
    return 1.0f;
}
static inline v_f32 v_block_q4_1(const char *block, v_f32 *q) {
    pyg_q4_1_decode(block, q);
    return 1.0f;
}
static inline v_f32 v_block_q5_0(const char *block, v_f32 *q) {
    pyg_q5_0_decode(block, q);
    return 1.0f;
}
static inline v_f32 v_block_q5_1(const char *block, v_f32 *q) {
    pyg_q5_1_decode(block, q);
    return 1.0f;
}
static inline v_f32 v_block_iq4_nl(const char *block, v_f32 *q) {
    pyg_iq4_nl_decode(block, q);
    return 1.0f;
}
static inline v_f32 v_block_mxfp4(const char *block, v_f32 *q) {
    pyg_mxfp4_decode(block, q);
    return 1.0f;
}

static inline void v_super_q2_k(const char *block, v_super *s) { pyg_q2_k_decode(block, s->y); }
static inline void v_super_q3_k(const char *block, v_super *s) { pyg_q3_k_decode(block, s->y); }
static inline void v_super_q4_k(const char *block, v_super *s) { pyg_q4_k_decode(block, s->y); }
static inline void v_super_q5_k(const char *block, v_super *s) { pyg_q5_k_decode(block, s->y); }
static inline void v_super_q6_k(const char *block, v_super *s) { pyg_q6_k_decode(block, s->y); }
static inline void v_super_iq4_xs(const char *block, v_super *s) { pyg_iq4_xs_decode(block, s->y); }
static inline void v_super_nvfp4(const char *block, v_super *s) { pyg_nvfp4_decode(block, s->y); }

/* Values are decoded block by block: a group of any format is where it lies. */
static inline void v_group(const char *block, const v_super *s, int g, v_f32 *q) {
    (void)block;
    memcpy(q, s->y + V_BLOCK * g, V_BLOCK * sizeof *q);
}
#define v_group_q2_k v_group
#define v_group_q3_k v_group
#define v_group_q4_k v_group
#define v_group_q5_k v_group
#define v_group_q6_k v_group
#define v_group_iq4_xs v_group
#define v_group_nvfp4 v_group

static inline void v_encode_q8_0(const float *x, char *block) { pyg_q8_0_encode(x, block); }
static inline void v_encode_q4_0(const float *x, char *block) { pyg_q4_0_encode(x, block); }
static inline void v_encode_q4_1(const float *x, char *block) { pyg_q4_1_encode(x, block); }

static inline void v_encode_q5_0(const float *x, char *block) { pyg_q5_0_encode(x, block); }
static inline void v_encode_q5_1(const float *x, char *block) { pyg_q5_1_encode(x, block); }

static inline void v_rotate(const float *x, const float *cos, const float *sin, float *y, int n) {
    (void)n;
    const float a = x[0], b = x[1];
    y[0] = a * cos[0] - b * sin[0];
    y[1] = b * cos[0] + a * sin[0];
}

static inline void v_transpose16(const float *const rows[16], int64_t i, int n, float *panel) {
    (void)n;
    for (int r = 0; r < 16; r++) panel[r] = rows[r] ? rows[r][i] : 0.0f;
}

#endif
