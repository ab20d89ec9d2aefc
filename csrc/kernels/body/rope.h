/* Rotary embedding (Su et al. 2021): pairs turned by angles given as cosines and sines. */
#ifndef PYG_KERNELS_BODY_ROPE_H
#define PYG_KERNELS_BODY_ROPE_H

#include "kernels/body/common.h"

static void K(rope_norm)(int64_t n_pairs, const float *x, const float *cos, const float *sin,
                         float *y) {
    int64_t i = 0;
    for (; i + V_PAIRS <= n_pairs; i += V_PAIRS)
        v_rotate(x + 2 * i, cos + i, sin + i, y + 2 * i, V_PAIRS);
    if (i < n_pairs) v_rotate(x + 2 * i, cos + i, sin + i, y + 2 * i, (int)(n_pairs - i));
}

static void K(rope_neox)(int64_t n_pairs, const float *x, const float *cos, const float *sin,
                         float *y) {
    const float *x2 = x + n_pairs;
    float *y2 = y + n_pairs;
    int64_t i = 0;
    for (; i + V_WIDTH <= n_pairs; i += V_WIDTH) {
        const v_f32 a = v_load(x + i), b = v_load(x2 + i), c = v_load(cos + i), s = v_load(sin + i);
        v_store(y + i, v_sub(v_mul(a, c), v_mul(b, s)));
        v_store(y2 + i, v_add(v_mul(b, c), v_mul(a, s)));
    }
    if (i < n_pairs) {
        const int n = (int)(n_pairs - i);
        const v_f32 a = v_load_n(x + i, n), b = v_load_n(x2 + i, n);
        const v_f32 c = v_load_n(cos + i, n), s = v_load_n(sin + i, n);
        v_store_n(y + i, v_sub(v_mul(a, c), v_mul(b, s)), n);
        v_store_n(y2 + i, v_add(v_mul(b, c), v_mul(a, s)), n);
    }
}

#endif
