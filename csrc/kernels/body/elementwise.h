/* add, sub, mul, div, scale and the check for finite values. */
#ifndef PYG_KERNELS_BODY_ELEMENTWISE_H
#define PYG_KERNELS_BODY_ELEMENTWISE_H

#include "kernels/body/common.h"

V_INLINE void binary(v_binary_fn op, int64_t n, const float *a, const float *b, float *y) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, op(v_load(a + i), v_load(b + i)));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, op(v_load_n(a + i, rest), v_load_n(b + i, rest)), rest);
    }
}

static void K(add)(int64_t n, const float *a, const float *b, float *y) {
    binary(v_add, n, a, b, y);
}
static void K(sub)(int64_t n, const float *a, const float *b, float *y) {
    binary(v_sub, n, a, b, y);
}
static void K(mul)(int64_t n, const float *a, const float *b, float *y) {
    binary(v_mul, n, a, b, y);
}
static void K(div)(int64_t n, const float *a, const float *b, float *y) {
    binary(v_div, n, a, b, y);
}

V_INLINE void scaled(int64_t n, const float *x, float s, float bias, float *y) {
    const v_f32 vs = v_set1(s), vb = v_set1(bias);
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, v_fma(vs, v_load(x + i), vb));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, v_fma(vs, v_load_n(x + i, rest), vb), rest);
    }
}

static void K(scale)(int64_t n, const float *x, float s, float bias, float *y) {
    scaled(n, x, s, bias, y);
}

/* 0 * x is NaN where x is NaN or infinite and 0 elsewhere, so the sum of all is 0 or NaN. */
static int K(all_finite)(int64_t n, const float *x) {
    const v_f32 zero = v_set1(0.0f);
    v_f32 sum = zero;
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) sum = v_fma(v_load(x + i), zero, sum);
    if (i < n) sum = v_fma(v_load_n(x + i, (int)(n - i)), zero, sum);
    return v_hsum(sum) == 0.0f;
}

#endif
