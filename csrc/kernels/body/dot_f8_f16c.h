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
 * code into the upper byte of a 16-bit lane; it works in halves of 16 bytes, hence the order. */
V_INLINE void f8_step(__m256i codes, const v_f32 *x, v_f32 *even, v_f32 *odd, __m256i *largest) {
    const __m256i zero = _mm256_setzero_si256(), keep = _mm256_set1_epi16((short)0xBF80);
    const __m256i a = _mm256_srai_epi16(_mm256_unpacklo_epi8(zero, codes), 1);
    const __m256i b = _mm256_srai_epi16(_mm256_unpackhi_epi8(zero, codes), 1);
    const __m256i low = _mm256_and_si256(a, keep), high = _mm256_and_si256(b, keep);
    *even = v_fma(_mm256_cvtph_ps(_mm256_castsi256_si128(low)), x[0], *even);
    *odd = v_fma(_mm256_cvtph_ps(_mm256_castsi256_si128(high)), x[1], *odd);
    *even = v_fma(_mm256_cvtph_ps(_mm256_extracti128_si256(low, 1)), x[2], *even);
    *odd = v_fma(_mm256_cvtph_ps(_mm256_extracti128_si256(high, 1)), x[3], *odd);
    *largest = _mm256_max_epu8(*largest, _mm256_or_si256(codes, _mm256_set1_epi8((char)0x80)));
}

V_INLINE float f8_finish(v_f32 even, v_f32 odd, __m256i largest) {
    const __m256i is_nan = _mm256_cmpeq_epi8(largest, _mm256_set1_epi8((char)0xFF));
    if (!_mm256_testz_si256(is_nan, is_nan)) return v_first(v_bits(0x7FC00000u));
    return v_hsum(v_add(even, odd)) * 0x1p8f;
}

V_INLINE void f8_rows(int n_rows, int64_t n, const char *w, size_t stride, const float *x,
                      float *y) {
    v_f32 even[MV_ROWS], odd[MV_ROWS];
    __m256i largest[MV_ROWS];
    V_UNROLL
    for (int r = 0; r < n_rows; r++) {
        even[r] = odd[r] = v_set1(0.0f);
        largest[r] = _mm256_setzero_si256();
    }
    int64_t i = 0;
    for (; i + F8_STEP <= n; i += F8_STEP) {
        v_f32 xs[4];
        V_UNROLL
        for (int j = 0; j < 4; j++) xs[j] = v_load(x + i + j * V_WIDTH);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const __m256i codes = v_load256(w + (size_t)r * stride + i);
            f8_step(codes, xs, &even[r], &odd[r], &largest[r]);
        }
    }
    if (i < n) { /* the last codes and their x, zeros after them */
        float window[F8_STEP] = {0};
        v_f32 xs[4];
        for (int64_t j = i; j < n; j++) window[j - i] = x[j];
        V_UNROLL
        for (int j = 0; j < 4; j++) xs[j] = v_load(window + j * V_WIDTH);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            char codes[F8_STEP] = {0};
            const char *row = w + (size_t)r * stride;
            for (int64_t j = i; j < n; j++) codes[j - i] = row[j];
            f8_step(v_load256(codes), xs, &even[r], &odd[r], &largest[r]);
        }
    }
    V_UNROLL
    for (int r = 0; r < n_rows; r++) y[r] = f8_finish(even[r], odd[r], largest[r]);
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
