/* The slots that map one vector to another, and those of the gated units. */
#ifndef PYG_KERNELS_BODY_UNARY_H
#define PYG_KERNELS_BODY_UNARY_H

#include "kernels/body/elementwise.h"
#include "kernels/body/vecmath.h"

typedef v_f32 (*v_unary_fn)(v_f32 x);
typedef float (*scalar_fn)(float x);

V_INLINE void unary(v_unary_fn op, int64_t n, const float *x, float *y) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, op(v_load(x + i)));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, op(v_load_n(x + i, rest)), rest);
    }
}

/* ---- exact ---- */

V_INLINE v_f32 v_sqr(v_f32 x) { return v_mul(x, x); }
/* NaN and -0 stay: v_max and v_min give their second operand then. */
V_INLINE v_f32 v_relu(v_f32 x) { return v_max(v_set1(0.0f), x); }
V_INLINE v_f32 v_step(v_f32 x) {
    const v_f32 zero = v_set1(0.0f);
    return v_select(v_lt(zero, x), v_set1(1.0f), zero);
}

static void K(sqr)(int64_t n, const float *x, float *y) { unary(v_sqr, n, x, y); }
static void K(sqrt)(int64_t n, const float *x, float *y) { unary(v_sqrt, n, x, y); }
static void K(neg)(int64_t n, const float *x, float *y) { unary(v_neg, n, x, y); }
static void K(abs)(int64_t n, const float *x, float *y) { unary(v_abs, n, x, y); }
static void K(relu)(int64_t n, const float *x, float *y) { unary(v_relu, n, x, y); }
static void K(step)(int64_t n, const float *x, float *y) { unary(v_step, n, x, y); }

static void K(clamp)(int64_t n, const float *x, float min, float max, float *y) {
    const v_f32 low = v_set1(min), high = v_set1(max);
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, v_min(high, v_max(low, v_load(x + i))));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, v_min(high, v_max(low, v_load_n(x + i, rest))), rest);
    }
}

V_INLINE v_f32 v_leaky(v_f32 x, v_f32 slope) {
    return v_select(v_lt(x, v_set1(0.0f)), v_mul(slope, x), x);
}

static void K(leaky_relu)(int64_t n, const float *x, float slope, float *y) {
    const v_f32 s = v_set1(slope);
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, v_leaky(v_load(x + i), s));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, v_leaky(v_load_n(x + i, rest), s), rest);
    }
}

/* ---- transcendental ---- */

static void K(exp)(int64_t n, const float *x, float *y) { unary(v_exp, n, x, y); }
static void K(log)(int64_t n, const float *x, float *y) { unary(v_log, n, x, y); }
static void K(tanh)(int64_t n, const float *x, float *y) { unary(v_tanh, n, x, y); }
static void K(sigmoid)(int64_t n, const float *x, float *y) { unary(v_sigmoid, n, x, y); }
static void K(softplus)(int64_t n, const float *x, float *y) { unary(v_softplus, n, x, y); }
static void K(silu)(int64_t n, const float *x, float *y) { unary(v_silu, n, x, y); }
static void K(gelu)(int64_t n, const float *x, float *y) { unary(v_gelu, n, x, y); }
static void K(gelu_erf)(int64_t n, const float *x, float *y) { unary(v_gelu_erf, n, x, y); }
static void K(gelu_quick)(int64_t n, const float *x, float *y) { unary(v_gelu_quick, n, x, y); }

/* Above 2^20 v_quarters has too few bits of pi: the C library takes those elements, and all that
 * are not finite. */
static __attribute__((noinline)) v_f32 trig_far(scalar_fn far, v_f32 x, v_f32 y) {
    float in[V_WIDTH], out[V_WIDTH];
    v_store(in, x);
    v_store(out, y);
    for (int i = 0; i < V_WIDTH; i++)
        if (!(fabsf(in[i]) <= 0x1p20f)) out[i] = far(in[i]);
    return v_load(out);
}

V_INLINE v_f32 trig(v_unary_fn near, scalar_fn far, v_f32 x) {
    const v_f32 y = near(x);
    return v_all(v_lt(v_abs(x), v_set1(0x1p20f))) ? y : trig_far(far, x, y);
}

V_INLINE v_f32 v_sin_any(v_f32 x) { return trig(v_sin, sinf, x); }
V_INLINE v_f32 v_cos_any(v_f32 x) { return trig(v_cos, cosf, x); }

static void K(sin)(int64_t n, const float *x, float *y) { unary(v_sin_any, n, x, y); }
static void K(cos)(int64_t n, const float *x, float *y) { unary(v_cos_any, n, x, y); }

/* ---- gated units ---- */

V_INLINE v_f32 v_swiglu(v_f32 gate, v_f32 up) { return v_mul(v_silu(gate), up); }
V_INLINE v_f32 v_geglu(v_f32 gate, v_f32 up) { return v_mul(v_gelu(gate), up); }
V_INLINE v_f32 v_geglu_erf(v_f32 gate, v_f32 up) { return v_mul(v_gelu_erf(gate), up); }
V_INLINE v_f32 v_geglu_quick(v_f32 gate, v_f32 up) { return v_mul(v_gelu_quick(gate), up); }
V_INLINE v_f32 v_reglu(v_f32 gate, v_f32 up) { return v_mul(v_relu(gate), up); }

static void K(swiglu)(int64_t n, const float *gate, const float *up, float *y) {
    binary(v_swiglu, n, gate, up, y);
}
static void K(geglu)(int64_t n, const float *gate, const float *up, float *y) {
    binary(v_geglu, n, gate, up, y);
}
static void K(geglu_erf)(int64_t n, const float *gate, const float *up, float *y) {
    binary(v_geglu_erf, n, gate, up, y);
}
static void K(geglu_quick)(int64_t n, const float *gate, const float *up, float *y) {
    binary(v_geglu_quick, n, gate, up, y);
}
static void K(reglu)(int64_t n, const float *gate, const float *up, float *y) {
    binary(v_reglu, n, gate, up, y);
}

#endif
