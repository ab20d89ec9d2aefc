/* Slots that work on codes: decoded, computed in F32 and encoded in registers. */
#ifndef PYG_KERNELS_BODY_DIRECT_H
#define PYG_KERNELS_BODY_DIRECT_H

#include "kernels/body/common.h"

V_INLINE void binary_codes(v_load_fn load, v_store_fn store, int bytes, v_binary_fn op, int64_t n,
                           const char *a, const char *b, char *y) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH)
        store(y + i * bytes, op(load(a + i * bytes), load(b + i * bytes)));
    if (i < n) {
        const int64_t at = i * bytes;
        const int rest = (int)(n - i) * bytes;
        store_tail(store, y + at, op(load_tail(load, a + at, rest), load_tail(load, b + at, rest)),
                   rest);
    }
}

static void K(add_f16)(int64_t n, const void *a, const void *b, void *y) {
    binary_codes(v_load_f16, v_store_f16, 2, v_add, n, a, b, y);
}
static void K(sub_f16)(int64_t n, const void *a, const void *b, void *y) {
    binary_codes(v_load_f16, v_store_f16, 2, v_sub, n, a, b, y);
}
static void K(mul_f16)(int64_t n, const void *a, const void *b, void *y) {
    binary_codes(v_load_f16, v_store_f16, 2, v_mul, n, a, b, y);
}
static void K(div_f16)(int64_t n, const void *a, const void *b, void *y) {
    binary_codes(v_load_f16, v_store_f16, 2, v_div, n, a, b, y);
}

V_INLINE void scaled_codes(v_load_fn load, v_store_fn store, int bytes, int64_t n, const char *x,
                           float s, float bias, char *y) {
    const v_f32 vs = v_set1(s), vb = v_set1(bias);
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) store(y + i * bytes, v_fma(vs, load(x + i * bytes), vb));
    if (i < n) {
        const int rest = (int)(n - i) * bytes;
        store_tail(store, y + i * bytes, v_fma(vs, load_tail(load, x + i * bytes, rest), vb), rest);
    }
}

static void K(scale_f16)(int64_t n, const void *x, float s, float bias, void *y) {
    scaled_codes(v_load_f16, v_store_f16, 2, n, x, s, bias, y);
}

/* a^2 + b^2, rounded once: the squares of F16 are exact in F32, and far from its limits. */
V_INLINE v_f32 f16_squares(v_f32 a, v_f32 b) { return v_fma(b, b, v_mul(a, a)); }

/* Four squares are added up in F32 and widened once: to widen each takes half of the time. */
static double K(sum_sqr_f16)(int64_t n, const void *codes) {
    const char *x = codes;
    v_wide sum = v_wide_zero();
    const int64_t bytes = 2, step = bytes * V_WIDTH;
    int64_t i = 0;
    for (; i + 4 * V_WIDTH <= n; i += 4 * V_WIDTH) {
        const char *at = x + i * bytes;
        const v_f32 front = f16_squares(v_load_f16(at), v_load_f16(at + step));
        const v_f32 back = f16_squares(v_load_f16(at + 2 * step), v_load_f16(at + 3 * step));
        sum = v_wide_add(sum, v_add(front, back));
    }
    for (; i < n; i += V_WIDTH) {
        const char *at = x + i * bytes;
        const int64_t left = n - i;
        sum = v_wide_square(sum, left >= V_WIDTH ? v_load_f16(at)
                                                 : load_tail(v_load_f16, at, (int)(left * bytes)));
    }
    return v_wide_sum(sum);
}

#endif
