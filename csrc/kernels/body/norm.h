/* rms_norm (Zhang & Sennrich 2019). */
#ifndef PYG_KERNELS_BODY_NORM_H
#define PYG_KERNELS_BODY_NORM_H

#include "kernels/body/elementwise.h"

static void K(rms_norm)(int64_t n, const float *x, float eps, float *y) {
    v_f32 even = v_set1(0.0f), odd = even;
    int64_t i = 0;
    for (; i + 2 * V_WIDTH <= n; i += 2 * V_WIDTH) {
        const v_f32 a = v_load(x + i), b = v_load(x + i + V_WIDTH);
        even = v_fma(a, a, even);
        odd = v_fma(b, b, odd);
    }
    for (; i < n; i += V_WIDTH) {
        const int64_t left = n - i;
        const v_f32 a = left >= V_WIDTH ? v_load(x + i) : v_load_n(x + i, (int)left);
        even = v_fma(a, a, even);
    }
    const float mean = v_hsum(v_add(even, odd)) / (float)n;
    scaled(n, x, 1.0f / v_sqrt1(mean + eps), 0.0f, y);
}

#endif
