/* The vector layer, width 8: AVX2, FMA and F16C. The names are explained in simd/generic.h.
 *
 * Included inside the target region of isa_avx2.c, which has included immintrin.h; clang defines no
 * __AVX2__ in such a region, so nothing here tests it. */
#ifndef PYG_KERNELS_SIMD_AVX2_H
#define PYG_KERNELS_SIMD_AVX2_H

#include "kernels/simd/unroll.h"

typedef __m256 v_f32;
typedef __m256 v_mask;

enum { V_WIDTH = 8, V_BLOCK = 4, V_PAIRS = 4 };

/* All ones in the first n of 8 lanes: a window into eight ones and eight zeros. */
static inline __m256i v_lanes(int n) {
    static const int32_t window[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(window + 8 - n));
}

static inline v_f32 v_set1(float x) { return _mm256_set1_ps(x); }
static inline v_f32 v_bits(uint32_t bits) {
    return _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)bits));
}

static inline v_f32 v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline v_f32 v_load_n(const float *p, int n) { return _mm256_maskload_ps(p, v_lanes(n)); }
static inline v_f32 v_load_or(const float *p, int n, v_f32 rest) {
    const __m256i lanes = v_lanes(n);
    return _mm256_blendv_ps(rest, _mm256_maskload_ps(p, lanes), _mm256_castsi256_ps(lanes));
}
static inline void v_store(float *p, v_f32 a) { _mm256_storeu_ps(p, a); }
static inline void v_store_n(float *p, v_f32 a, int n) { _mm256_maskstore_ps(p, v_lanes(n), a); }
static inline void v_copy(const float *from, float *to) { v_store(to, v_load(from)); }
/* gcc finds a function that only prefetches pure, and drops its calls unless it is inlined first.
 */
V_INLINE void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

static inline float v_first(v_f32 a) { return _mm256_cvtss_f32(a); }
static inline v_f32 v_add(v_f32 a, v_f32 b) { return _mm256_add_ps(a, b); }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return _mm256_sub_ps(a, b); }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return _mm256_mul_ps(a, b); }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return _mm256_div_ps(a, b); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm256_fmadd_ps(a, b, c); }
static inline v_f32 v_max(v_f32 a, v_f32 b) { return _mm256_max_ps(a, b); }
static inline v_f32 v_min(v_f32 a, v_f32 b) { return _mm256_min_ps(a, b); }
static inline v_f32 v_abs(v_f32 a) { return _mm256_and_ps(a, v_bits(0x7FFFFFFFu)); }
static inline v_f32 v_neg(v_f32 a) { return _mm256_xor_ps(a, v_bits(0x80000000u)); }
static inline v_f32 v_flip(v_f32 y, v_f32 s) {
    return _mm256_xor_ps(y, _mm256_and_ps(s, v_bits(0x80000000u)));
}
static inline v_f32 v_coarse(v_f32 a) { return _mm256_and_ps(a, v_bits(0xFFFFF000u)); }
static inline v_f32 v_sqrt(v_f32 a) { return _mm256_sqrt_ps(a); }
static inline v_mask v_eq(v_f32 a, v_f32 b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline v_mask v_lt(v_f32 a, v_f32 b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline v_f32 v_select(v_mask m, v_f32 yes, v_f32 no) { return _mm256_blendv_ps(no, yes, m); }

static inline int v_all(v_mask m) { return _mm256_movemask_ps(m) == 0xFF; }

static inline float v_hsum(v_f32 a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float v_hmax(v_f32 a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline int v_any(v_mask m) { return _mm256_movemask_ps(m) != 0; }

typedef struct v_wide {
    __m256d low, high;
} v_wide;

V_INLINE __m256d v_low_wide(v_f32 a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
V_INLINE __m256d v_high_wide(v_f32 a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
V_INLINE v_wide v_wide_zero(void) {
    const v_wide zero = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    return zero;
}
V_INLINE v_wide v_wide_add(v_wide s, v_f32 x) {
    s.low = _mm256_add_pd(s.low, v_low_wide(x));
    s.high = _mm256_add_pd(s.high, v_high_wide(x));
    return s;
}
V_INLINE v_wide v_wide_square(v_wide s, v_f32 x) {
    const __m256d low = v_low_wide(x), high = v_high_wide(x);
    s.low = _mm256_fmadd_pd(low, low, s.low);
    s.high = _mm256_fmadd_pd(high, high, s.high);
    return s;
}
V_INLINE v_wide v_wide_load(const double *p) {
    const v_wide s = {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)};
    return s;
}
V_INLINE void v_wide_store(double *p, v_wide s) {
    _mm256_storeu_pd(p, s.low);
    _mm256_storeu_pd(p + 4, s.high);
}
V_INLINE v_wide v_wide_scale(v_wide s, double r) {
    s.low = _mm256_mul_pd(s.low, _mm256_set1_pd(r));
    s.high = _mm256_mul_pd(s.high, _mm256_set1_pd(r));
    return s;
}
V_INLINE double v_wide_sum(v_wide s) {
    const __m256d four = _mm256_add_pd(s.low, s.high);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
static inline double v_sqrt1_wide(double x) {
    const __m128d a = _mm_set_sd(x);
    return _mm_cvtsd_f64(_mm_sqrt_sd(a, a));
}

/* Rounds 1, 2 and 4: each lane's partner, plus the lane itself with its sign turned in the upper
 * one of each pair. */
static inline v_f32 v_fwht(v_f32 a) {
    const v_f32 n = _mm256_set1_ps(-0.0f), p = _mm256_setzero_ps();
    a = v_add(_mm256_permute_ps(a, 0xB1), _mm256_xor_ps(a, _mm256_blend_ps(p, n, 0xAA)));
    a = v_add(_mm256_permute_ps(a, 0x4E), _mm256_xor_ps(a, _mm256_blend_ps(p, n, 0xCC)));
    return v_add(_mm256_permute2f128_ps(a, a, 1), _mm256_xor_ps(a, _mm256_blend_ps(p, n, 0xF0)));
}

#define V_ROUND 0x1.8p23f

static inline v_f32 v_ldexp(v_f32 x, v_f32 t) {
    const __m256i round = _mm256_castps_si256(v_set1(V_ROUND)), bias = _mm256_set1_epi32(127);
    const __m256i k = _mm256_sub_epi32(_mm256_castps_si256(t), round);
    const __m256i half = _mm256_srai_epi32(k, 1);
    const __m256i rest = _mm256_sub_epi32(k, half);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return v_mul(v_mul(x, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

static inline v_f32 v_split(v_f32 x, v_f32 *k) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i above = _mm256_sub_epi32(bits, _mm256_set1_epi32(0x3F3504F3)); /* sqrt 1/2 */
    const __m256i e = _mm256_srai_epi32(above, 23);
    *k = _mm256_cvtepi32_ps(e);
    return _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
}

/* Four lanes of v_quarters, in double. */
V_INLINE __m128 v_quarters4(__m128 x, __m256i *k_bits) {
    const __m256d wide = _mm256_cvtps_pd(x), round = _mm256_set1_pd(0x1.8p52);
    const __m256d turns = _mm256_mul_pd(wide, _mm256_set1_pd(0x1.45f306dc9c883p-1));
    const __m256d t = _mm256_add_pd(turns, round), k = _mm256_sub_pd(t, round);
    const __m256d high = _mm256_mul_pd(k, _mm256_set1_pd(0x1.921fb544p0));
    const __m256d low = _mm256_mul_pd(k, _mm256_set1_pd(0x1.0b4611a626331p-34));
    *k_bits = _mm256_castpd_si256(t);
    return _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_sub_pd(wide, high), low));
}

static inline v_f32 v_quarters(v_f32 x, int first, v_mask *odd, v_f32 *sign) {
    __m256i a, b;
    const __m128 low = v_quarters4(_mm256_castps256_ps128(x), &a);
    const __m128 high = v_quarters4(_mm256_extractf128_ps(x, 1), &b);
    /* the low halves of the 64-bit lanes: a0 a1 b0 b1 a2 a3 b2 b3, then in order */
    const v_f32 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
    const __m256i k = _mm256_add_epi32(_mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xD8),
                                       _mm256_set1_epi32(first));
    *odd = _mm256_castsi256_ps(_mm256_srai_epi32(_mm256_slli_epi32(k, 31), 31));
    *sign = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(k, 30)), v_bits(0x80000000u));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

/*  lanes of x      a0 b0 a1 b1 a2 b2 a3 b3
 *  times cos       c0 c0 c1 c1 c2 c2 c3 c3
 *  swapped         b0 a0 b1 a1 b2 a2 b3 a3, times sin in the same way, subtracted in even lanes,
 * added in odd */
static inline v_f32 v_rotated(v_f32 x, __m128 cos, __m128 sin) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const v_f32 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(cos), twice);
    const v_f32 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(sin), twice);
    return _mm256_addsub_ps(v_mul(x, c), v_mul(_mm256_permute_ps(x, 0xB1), s));
}

static inline void v_rotate(const float *x, const float *cos, const float *sin, float *y, int n) {
    if (n == V_PAIRS) {
        v_store(y, v_rotated(v_load(x), _mm_loadu_ps(cos), _mm_loadu_ps(sin)));
        return;
    }
    const __m128i lanes = _mm256_castsi256_si128(v_lanes(n));
    const __m128 c = _mm_maskload_ps(cos, lanes), s = _mm_maskload_ps(sin, lanes);
    v_store_n(y, v_rotated(v_load_n(x, 2 * n), c, s), 2 * n);
}

/* Eight rows of eight columns to eight columns of eight rows, in three rounds of exchanges: pairs
 * of elements, pairs of pairs, then the 128-bit halves. */
V_INLINE void v_transpose8(const v_f32 *r, v_f32 *c) {
    v_f32 p[8], q[8];
    V_UNROLL
    for (int i = 0; i < 8; i += 2) {
        p[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    V_UNROLL
    for (int i = 0; i < 8; i += 4) {
        q[i] = _mm256_shuffle_ps(p[i], p[i + 2], 0x44);
        q[i + 1] = _mm256_shuffle_ps(p[i], p[i + 2], 0xEE);
        q[i + 2] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0x44);
        q[i + 3] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0xEE);
    }
    V_UNROLL
    for (int i = 0; i < 4; i++) {
        c[i] = _mm256_permute2f128_ps(q[i], q[i + 4], 0x20);
        c[i + 4] = _mm256_permute2f128_ps(q[i], q[i + 4], 0x31);
    }
}

V_INLINE void v_transpose16(const float *const rows[16], int64_t i, int n, float *panel) {
    V_UNROLL
    for (int half = 0; half < 16; half += 8) {
        v_f32 in[8], out[8];
        V_UNROLL
        for (int r = 0; r < 8; r++) {
            const float *row = rows[half + r];
            if (!row)
                in[r] = v_set1(0.0f);
            else
                in[r] = n == V_WIDTH ? v_load(row + i) : v_load_n(row + i, n);
        }
        v_transpose8(in, out);
        V_UNROLL
        for (int c = 0; c < V_WIDTH; c++)
            if (c < n) v_store(panel + c * 16 + half, out[c]);
    }
}

#endif
