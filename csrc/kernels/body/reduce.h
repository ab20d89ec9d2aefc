/* sum, sum_sqr, scale_wide, norm, argmax. Sums are kept in double: a row may be long, or cancel. */
#ifndef PYG_KERNELS_BODY_REDUCE_H
#define PYG_KERNELS_BODY_REDUCE_H

#include "kernels/body/elementwise.h"

static double K(sum)(int64_t n, const float *x) {
    v_wide even = v_wide_zero(), odd = even;
    int64_t i = 0;
    for (; i + 2 * V_WIDTH <= n; i += 2 * V_WIDTH) {
        even = v_wide_add(even, v_load(x + i));
        odd = v_wide_add(odd, v_load(x + i + V_WIDTH));
    }
    for (; i < n; i += V_WIDTH) {
        const int64_t left = n - i;
        even = v_wide_add(even, left >= V_WIDTH ? v_load(x + i) : v_load_n(x + i, (int)left));
    }
    return v_wide_sum(even) + v_wide_sum(odd);
}

static double K(sum_sqr)(int64_t n, const float *x) {
    v_wide even = v_wide_zero(), odd = even;
    int64_t i = 0;
    for (; i + 2 * V_WIDTH <= n; i += 2 * V_WIDTH) {
        even = v_wide_square(even, v_load(x + i));
        odd = v_wide_square(odd, v_load(x + i + V_WIDTH));
    }
    for (; i < n; i += V_WIDTH) {
        const int64_t left = n - i;
        even = v_wide_square(even, left >= V_WIDTH ? v_load(x + i) : v_load_n(x + i, (int)left));
    }
    return v_wide_sum(even) + v_wide_sum(odd);
}

/* y = x * s, where s itself may be outside of what F32 holds well: a power of two goes first. */
static void K(scale_wide)(int64_t n, const float *x, double s, float *y) {
    if (s > 0x1p100) {
        scaled(n, x, 0x1p64f, 0.0f, y);
        scaled(n, y, (float)(s * 0x1p-64), 0.0f, y);
    } else if (s < 0x1p-100) {
        scaled(n, x, 0x1p-64f, 0.0f, y);
        scaled(n, y, (float)(s * 0x1p64), 0.0f, y);
    } else {
        scaled(n, x, (float)s, 0.0f, y);
    }
}

/* The mean is taken off in two parts: x - high is exact where x is near the mean, and the rest of
 * the mean matters where it is large against the deviations. */
static void K(norm)(int64_t n, const float *x, float eps, float *y) {
    if (n <= 0) return;
    const double mean = K(sum)(n, x) / (double)n;
    const float high = (float)mean;
    const v_f32 vh = v_set1(high), vl = v_set1((float)(mean - (double)high));
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, v_sub(v_sub(v_load(x + i), vh), vl));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, v_sub(v_sub(v_load_n(x + i, rest), vh), vl), rest);
    }
    const double variance = K(sum_sqr)(n, y) / (double)n;
    K(scale_wide)(n, y, 1.0 / v_sqrt1_wide(variance + (double)eps), y);
}

/* First the largest value and whether there is a NaN, then where it is. */
static int64_t K(argmax)(int64_t n, const float *x) {
    const v_f32 lowest = v_set1(-INFINITY);
    v_f32 most = lowest, nans = v_set1(0.0f);
    int64_t i = 0;
    for (; i < n; i += V_WIDTH) {
        const int64_t left = n - i;
        const v_f32 a = left >= V_WIDTH ? v_load(x + i) : v_load_or(x + i, (int)left, lowest);
        most = v_max(a, most);
        nans = v_select(v_eq(a, a), nans, a); /* a NaN stays */
    }
    const float nan = v_hsum(nans), max = v_hmax(most);
    if (nan != nan) {
        for (i = 0; x[i] == x[i]; i++) {
        }
        return i;
    }
    const v_f32 wanted = v_set1(max);
    for (i = 0; i + V_WIDTH <= n && !v_any(v_eq(v_load(x + i), wanted)); i += V_WIDTH) {
    }
    while (i < n && x[i] != max) i++;
    return i < n ? i : -1;
}

#endif
