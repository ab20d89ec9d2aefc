/* soft_max and attn_softmax: scores, their maximum, exp, sum.
 *
 * A cell whose mask is -inf becomes -inf by selection, not by addition: NaN - inf would stay NaN.
 * The maximum ignores NaN; exp does not, so a NaN that is not masked reaches the sum and through it
 * the whole row. */
#ifndef PYG_KERNELS_BODY_SOFTMAX_H
#define PYG_KERNELS_BODY_SOFTMAX_H

#include "kernels/body/elementwise.h"
#include "kernels/body/vecmath.h"

#define MINUS_INF (-INFINITY)

V_INLINE v_f32 masked(v_f32 x, v_f32 scale, v_f32 mask) {
    const v_f32 removed = v_set1(MINUS_INF);
    return v_select(v_eq(mask, removed), removed, v_fma(x, scale, mask));
}

/* y = x * scale + mask; returns the maximum of y and `max`. */
V_INLINE float softmax_scores(int64_t n, const float *x, float scale, const float *mask, float max,
                              float *y) {
    static const float zeros[V_WIDTH] = {0};
    const v_f32 vs = v_set1(scale), none = v_set1(0.0f), removed = v_set1(MINUS_INF);
    v_f32 most = v_set1(max);
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) {
        const v_f32 m = mask ? v_load(mask + i) : none;
        const v_f32 s = masked(v_load(x + i), vs, m);
        v_store(y + i, s);
        most = v_max(s, most);
    }
    if (i < n) { /* lanes past the end count as masked */
        const int rest = (int)(n - i);
        const v_f32 m = v_load_or(mask ? mask + i : zeros, rest, removed);
        const v_f32 s = masked(v_load_n(x + i, rest), vs, m);
        v_store_n(y + i, s, rest);
        most = v_max(s, most);
    }
    return v_hmax(most);
}

/* y = exp(y - max); returns the sum, which in F32 would be off by several ulp for long rows. */
V_INLINE double softmax_exp(int64_t n, float *y, float max) {
    const v_f32 vm = v_set1(max);
    v_wide sum = v_wide_zero();
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) {
        const v_f32 e = v_exp(v_sub(v_load(y + i), vm));
        v_store(y + i, e);
        sum = v_wide_add(sum, e);
    }
    if (i < n) { /* lanes past the end are exp(-inf) = 0 */
        const int rest = (int)(n - i);
        const v_f32 e = v_exp(v_sub(v_load_or(y + i, rest, v_set1(MINUS_INF)), vm));
        v_store_n(y + i, e, rest);
        sum = v_wide_add(sum, e);
    }
    return v_wide_sum(sum);
}

/* -inf - -inf is NaN: where all is masked the scores are taken as they are, and exp(-inf) is 0. */
V_INLINE float softmax_base(float max) { return max == MINUS_INF ? 0.0f : max; }

static void K(soft_max)(int64_t n, const float *x, float scale, const float *mask, float sink,
                        float *y) {
    const float base = softmax_base(softmax_scores(n, x, scale, mask, sink, y));
    const float sink_weight = v_first(v_exp(v_set1(sink - base)));
    const float sum = (float)(softmax_exp(n, y, base) + (double)sink_weight);
    scaled(n, y, sum == 0.0f ? 0.0f : 1.0f / sum, 0.0f, y);
    if (sum == sum || !mask) return;
    for (int64_t i = 0; i < n; i++)
        if (mask[i] == MINUS_INF) y[i] = 0.0f; /* masked cells of a NaN row */
}

static float K(attn_softmax)(int64_t n, float *s, float scale, const float *mask, float *max,
                             double *sum) {
    const float old_max = *max;
    const float new_max = softmax_scores(n, s, scale, mask, old_max, s);
    const double added = softmax_exp(n, s, softmax_base(new_max));
    const float r = new_max == MINUS_INF ? 1.0f : v_first(v_exp(v_set1(old_max - new_max)));
    *sum = *sum * (double)r + added;
    *max = new_max;
    return r;
}

static void K(decay_add)(int64_t n, float r, const float *x, double *y) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH)
        v_wide_store(y + i, v_wide_add(v_wide_scale(v_wide_load(y + i), (double)r), v_load(x + i)));
    for (; i < n; i++) y[i] = y[i] * (double)r + (double)x[i];
}

#endif
