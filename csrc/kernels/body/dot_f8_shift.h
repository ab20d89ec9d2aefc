/* dot_f8_e4m3 and mv_f8_e4m3 by shifts (AVX2), for CPUs on which denormal operands cost nothing.
 *
 * A code moved to bits 31 and 26..20 of an F32 is worth 2^-120 of its value, a subnormal code is a
 * denormal. Shifts and masks are done once for the two codes of a 16-bit lane:
 *
 *     32-bit lane          code 3    code 2    code 1    code 0
 *     lo = codes << 8 >> 4, in 16 bits       S000EEEE MMM00000 of codes 2 and 0
 *     hi = codes >> 4, in 16 bits            the same of codes 3 and 1
 *     F32                  lo << 16, hi << 16, lo & 0xFFFF0000, hi & 0xFFFF0000
 *
 * so one vector holds every fourth weight, and x is put into that order once for all rows. It is
 * multiplied by 2^60 on the way, the sum by 2^60: neither large nor small activations leave the
 * range of F32. Where that may not hold (a result that is tiny or not finite), where a NaN code was
 * met, and under FTZ or DAZ, the F16C form does the row; which one it is depends on the row alone.
 */
#ifndef PYG_KERNELS_BODY_DOT_F8_SHIFT_H
#define PYG_KERNELS_BODY_DOT_F8_SHIFT_H

#include "kernels/body/dot_f8_f16c.h"

enum { F8_SHIFT_MAX = 4096, FTZ_OR_DAZ = 0x8040 };

/* 32 floats to x[0] x[4] .. x[28], x[1] x[5] .. x[29] and so on, times 2^60: a transposition of
 * four by four in each half, the halves holding x[0..15] and x[16..31]. */
V_INLINE void f8_every_fourth(const float *x, float *y) {
    const v_f32 up = v_set1(0x1p60f);
    v_f32 r[4];
    V_UNROLL
    for (int j = 0; j < 4; j++) {
        const __m128 low = _mm_loadu_ps(x + 4 * j), high = _mm_loadu_ps(x + 16 + 4 * j);
        r[j] = v_mul(_mm256_set_m128(high, low), up);
    }
    const v_f32 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    const v_f32 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    v_store(y, _mm256_shuffle_ps(a, c, 0x44));
    v_store(y + 8, _mm256_shuffle_ps(a, c, 0xEE));
    v_store(y + 16, _mm256_shuffle_ps(b, d, 0x44));
    v_store(y + 24, _mm256_shuffle_ps(b, d, 0xEE));
}

/* The last n < 32 of x, zeros after them. */
V_INLINE void f8_last_fourth(int64_t n, const float *x, float *y) {
    float window[F8_STEP] = {0};
    for (int64_t j = 0; j < n; j++) window[j] = x[j];
    f8_every_fourth(window, y);
}

V_INLINE void f8_shift_step(__m256i codes, const float *x, v_f32 *even, v_f32 *odd,
                            __m256i *largest) {
    const __m256i keep = _mm256_set1_epi16((short)0x87F0);
    const __m256i top = _mm256_set1_epi32((int32_t)0xFFFF0000u);
    const __m256i hi = _mm256_and_si256(_mm256_srai_epi16(codes, 4), keep);
    const __m256i lo = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 4), keep);
    *even = v_fma(_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), v_load(x), *even);
    *odd = v_fma(_mm256_castsi256_ps(_mm256_slli_epi32(hi, 16)), v_load(x + 8), *odd);
    *even = v_fma(_mm256_castsi256_ps(_mm256_and_si256(lo, top)), v_load(x + 16), *even);
    *odd = v_fma(_mm256_castsi256_ps(_mm256_and_si256(hi, top)), v_load(x + 24), *odd);
    *largest = _mm256_max_epu8(*largest, _mm256_add_epi8(codes, codes));
}

/* fourth: x in the order of f8_every_fourth, as far as it goes in 32s; NULL: made on the way. */
V_INLINE void f8_shift_rows(int n_rows, int64_t n, const char *w, size_t stride, const float *x,
                            const float *fourth, float *y) {
    v_f32 even[MV_ROWS], odd[MV_ROWS];
    __m256i largest = _mm256_setzero_si256();
    V_UNROLL
    for (int r = 0; r < n_rows; r++) even[r] = odd[r] = v_set1(0.0f);
    const char *next = w + (size_t)n_rows * stride;
    int64_t i = 0;
    for (; i + F8_STEP <= n; i += F8_STEP) {
        float made[F8_STEP];
        if (!fourth) f8_every_fourth(x + i, made);
        next = prefetch_ahead(n_rows, next, F8_STEP);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256i codes = v_load256(w + (size_t)r * stride + i);
            const float *xs = fourth ? fourth + i : made;
            f8_shift_step(codes, xs, &even[r], &odd[r], &largest);
        }
    }
    if (i < n) {
        float made[F8_STEP];
        f8_last_fourth(n - i, x + i, made);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            char codes[F8_STEP] = {0};
            const char *row = w + (size_t)r * stride;
            for (int64_t j = i; j < n; j++) codes[j - i] = row[j];
            f8_shift_step(v_load256(codes), made, &even[r], &odd[r], &largest);
        }
    }
    const int any_nan = f8_has_nan(largest);
    V_UNROLL
    for (int r = 0; r < n_rows; r++) y[r] = v_hsum(v_add(even[r], odd[r])) * 0x1p60f;
    for (int r = 0; r < n_rows; r++) {
        const float size = y[r] < 0.0f ? -y[r] : y[r];
        const int is_plain = size > 0x1p-40f && size <= 0x1.fffffep127f;
        if (is_plain && !any_nan) continue;
        float exact;
        f8_rows(1, n, w + (size_t)r * stride, stride, x, &exact);
        if (!is_plain || exact != exact) y[r] = exact;
    }
}

static int f8_needs_halves(int64_t n) { return n > F8_SHIFT_MAX || (_mm_getcsr() & FTZ_OR_DAZ); }

static float K(dot_f8_e4m3_shift)(int64_t n, const void *w, const float *x) {
    if (f8_needs_halves(n)) return K(dot_f8_e4m3)(n, w, x);
    float y;
    f8_shift_rows(1, n, w, 0, x, NULL, &y);
    return y;
}

static void K(mv_f8_e4m3_shift)(int64_t n, int64_t rows, const void *w, size_t w_stride,
                                const float *x, float *y) {
    if (f8_needs_halves(n)) {
        K(mv_f8_e4m3)(n, rows, w, w_stride, x, y);
        return;
    }
    float fourth[F8_SHIFT_MAX];
    for (int64_t i = 0; i + F8_STEP <= n; i += F8_STEP) f8_every_fourth(x + i, fourth + i);
    const char *p = w;
    int64_t r = 0;
    for (; r + MV_ROWS <= rows; r += MV_ROWS)
        f8_shift_rows(MV_ROWS, n, p + (size_t)r * w_stride, w_stride, x, fourth, y + r);
    for (; r < rows; r++) f8_shift_rows(1, n, p + (size_t)r * w_stride, w_stride, x, fourth, y + r);
}

#endif
