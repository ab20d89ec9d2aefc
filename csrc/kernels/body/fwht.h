/* Fast Walsh-Hadamard transform: log2(n) rounds of sums and differences (Fino & Algazi 1976).
 *
 * The rounds at distances below the vector's width happen inside vectors; of the others two are
 * done at a time, which halves the traffic. The order of the additions is that of the plain rounds
 * in every instruction set. */
#ifndef PYG_KERNELS_BODY_FWHT_H
#define PYG_KERNELS_BODY_FWHT_H

#include "kernels/body/common.h"

/* Rounds h and 2h. */
V_INLINE void fwht_two_rounds(int64_t n, int64_t h, float *y) {
    for (int64_t at = 0; at < n; at += 4 * h) {
        float *p = y + at;
        for (int64_t j = 0; j < h; j += V_WIDTH, p += V_WIDTH) {
            const v_f32 a = v_load(p), b = v_load(p + h), c = v_load(p + 2 * h),
                        d = v_load(p + 3 * h);
            const v_f32 ab = v_add(a, b), a_b = v_sub(a, b), cd = v_add(c, d), c_d = v_sub(c, d);
            v_store(p, v_add(ab, cd));
            v_store(p + h, v_add(a_b, c_d));
            v_store(p + 2 * h, v_sub(ab, cd));
            v_store(p + 3 * h, v_sub(a_b, c_d));
        }
    }
}

V_INLINE void fwht_round(int64_t n, int64_t h, float *y) {
    for (int64_t at = 0; at < n; at += 2 * h)
        for (int64_t j = at; j < at + h; j += V_WIDTH) {
            const v_f32 a = v_load(y + j), b = v_load(y + j + h);
            v_store(y + j, v_add(a, b));
            v_store(y + j + h, v_sub(a, b));
        }
}

/* n < V_WIDTH */
static void K(fwht_short)(int64_t n, const float *x, float scale, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale;
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t at = 0; at < n; at += 2 * h)
            for (int64_t j = at; j < at + h; j++) {
                const float a = y[j], b = y[j + h];
                y[j] = a + b;
                y[j + h] = a - b;
            }
}

static void K(fwht)(int64_t n, const float *x, float scale, float *y) {
    if (n < V_WIDTH) {
        K(fwht_short)(n, x, scale, y);
        return;
    }
    const v_f32 vs = v_set1(scale);
    for (int64_t i = 0; i < n; i += V_WIDTH) v_store(y + i, v_fwht(v_mul(v_load(x + i), vs)));
    int64_t h = V_WIDTH;
    for (; 4 * h <= n; h *= 4) fwht_two_rounds(n, h, y);
    if (2 * h <= n) fwht_round(n, h, y);
}

#endif
