/* dot_f8_e4m3 and mv_f8_e4m3 through halves (AVX2 + F16C): 32 codes a step.
 *
 * The codes become halves worth 2^-8 of their value (v_f8_halves), which F16C widens exactly,
 * whatever FTZ and DAZ say; the sum is multiplied by 2^8 once. NaN codes come out as 480: the
 * largest code of a row is kept beside the sum, and a row that holds one is NaN. */
#ifndef PYG_KERNELS_BODY_DOT_F8_F16C_H
#define PYG_KERNELS_BODY_DOT_F8_F16C_H

#include "kernels/body/dot.h"

enum { F8_STEP = 32 };

/* even += codes 0..7 and 16..23, odd += codes 8..15 and 24..31. Unpacking against zeros puts each
 * code into the upper byte of a 16-bit lane; it works in halves of 16 bytes, hence the order.
 * Doubling a code drops its sign: `largest` becomes 0xFE when a NaN code was met. */
V_INLINE void f8_step(__m256i codes, const float *x, v_f32 *even, v_f32 *odd, __m256i *largest) {
    const __m256i zero = _mm256_setzero_si256(), keep = _mm256_set1_epi16((short)0xBF80);
    const __m256i a = _mm256_srai_epi16(_mm256_unpacklo_epi8(zero, codes), 1);
    const __m256i b = _mm256_srai_epi16(_mm256_unpackhi_epi8(zero, codes), 1);
    const __m256i low = _mm256_and_si256(a, keep), high = _mm256_and_si256(b, keep);
    *even = v_fma(_mm256_cvtph_ps(_mm256_castsi256_si128(low)), v_load(x), *even);
    *odd = v_fma(_mm256_cvtph_ps(_mm256_castsi256_si128(high)), v_load(x + 8), *odd);
    *even = v_fma(_mm256_cvtph_ps(_mm256_extracti128_si256(low, 1)), v_load(x + 16), *even);
    *odd = v_fma(_mm256_cvtph_ps(_mm256_extracti128_si256(high, 1)), v_load(x + 24), *odd);
    *largest = _mm256_max_epu8(*largest, _mm256_add_epi8(codes, codes));
}

V_INLINE int f8_has_nan(__m256i largest) {
    const __m256i is_nan = _mm256_cmpeq_epi8(largest, _mm256_set1_epi8((char)0xFE));
    return !_mm256_testz_si256(is_nan, is_nan);
}

/* Returns 1 when one of the rows holds a NaN code; its sum is meaningless then. */
V_INLINE int f8_sums(int n_rows, int64_t n, const char *w, size_t stride, const float *x,
                     float *y) {
    v_f32 even[MV_ROWS], odd[MV_ROWS];
    __m256i largest = _mm256_setzero_si256();
    V_UNROLL
    for (int r = 0; r < n_rows; r++) even[r] = odd[r] = v_set1(0.0f);
    const char *next = w + (size_t)n_rows * stride;
    int64_t i = 0;
    for (; i + F8_STEP <= n; i += F8_STEP) {
        next = prefetch_ahead(n_rows, next, F8_STEP);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256i codes = v_load256(w + (size_t)r * stride + i);
            f8_step(codes, x + i, &even[r], &odd[r], &largest);
        }
    }
    if (i < n) { /* the last codes and their x, zeros after them */
        float window[F8_STEP] = {0};
        for (int64_t j = i; j < n; j++) window[j - i] = x[j];
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            char codes[F8_STEP] = {0};
            const char *row = w + (size_t)r * stride;
            for (int64_t j = i; j < n; j++) codes[j - i] = row[j];
            f8_step(v_load256(codes), window, &even[r], &odd[r], &largest);
        }
    }
    V_UNROLL
    for (int r = 0; r < n_rows; r++) y[r] = v_hsum(v_add(even[r], odd[r])) * 0x1p8f;
    return f8_has_nan(largest);
}

V_INLINE void f8_rows(int n_rows, int64_t n, const char *w, size_t stride, const float *x,
                      float *y) {
    if (!f8_sums(n_rows, n, w, stride, x, y)) return;
    for (int r = 0; r < n_rows; r++) /* which of them? */
        if (f8_sums(1, n, w + (size_t)r * stride, stride, x, y + r)) y[r] = NAN;
}

static float K(dot_f8_e4m3)(int64_t n, const void *w, const float *x) {
    float y;
    f8_rows(1, n, w, 0, x, &y);
    return y;
}

static void K(mv_f8_e4m3)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                          float *y) {
    const char *p = w;
    int64_t r = 0;
    for (; r + MV_ROWS <= rows; r += MV_ROWS)
        f8_rows(MV_ROWS, n, p + (size_t)r * w_stride, w_stride, x, y + r);
    for (; r < rows; r++) f8_rows(1, n, p + (size_t)r * w_stride, w_stride, x, y + r);
}

#endif
