/* exp and the functions made from it. */
#ifndef PYG_KERNELS_BODY_VECMATH_H
#define PYG_KERNELS_BODY_VECMATH_H

#include "kernels/body/common.h"

/* exp(x) = 2^k * exp(r), k = round(x / ln 2), |r| <= ln 2 / 2.
 *
 * ln 2 is subtracted in two parts, the first of 10 bits, so that k times it is exact (Cody & Waite
 * 1980). exp(r) = 1 + r + r^2 q(r), q of degree 4 fitted by Lawson's weighted least squares over
 * |r| < 0.3475: relative error 4e-9. Outside the bounds the result is 0 or infinity anyway;
 * denormal results are rounded once. NaN passes both bounds because v_min and v_max return their
 * second operand then. */
V_INLINE v_f32 v_exp(v_f32 x) {
    const v_f32 bounded = v_min(v_set1(89.0f), v_max(v_set1(-105.0f), x));
    const v_f32 t = v_fma(bounded, v_set1(0x1.715476p+0f), v_set1(V_ROUND));
    const v_f32 k = v_sub(t, v_set1(V_ROUND));
    v_f32 r = v_fma(k, v_set1(-0x1.63p-1f), bounded);
    r = v_fma(k, v_set1(0x1.bd0106p-13f), r);
    v_f32 q = v_set1(0x1.6a21acp-10f);
    q = v_fma(q, r, v_set1(0x1.123b6ap-7f));
    q = v_fma(q, r, v_set1(0x1.5558fap-5f));
    q = v_fma(q, r, v_set1(0x1.55549p-3f));
    q = v_fma(q, r, v_set1(0x1.fffffcp-2f));
    const v_f32 below_one = v_fma(v_mul(r, r), q, r);
    return v_ldexp(v_add(below_one, v_set1(1.0f)), t);
}

/* x / (1 + exp(-x)), with e = exp(-|x|) so that no exp overflows: x * (x < 0 ? e : 1) / (1 + e).
 * The lower bound makes silu(-inf) -0 and not -inf * 0. */
V_INLINE v_f32 v_silu(v_f32 x) {
    const v_f32 one = v_set1(1.0f), e = v_exp(v_neg(v_abs(x)));
    const v_f32 bounded = v_max(v_set1(-0x1.fffffep127f), x);
    const v_f32 share = v_select(v_lt(x, v_set1(0.0f)), e, one);
    return v_div(v_mul(bounded, share), v_add(one, e));
}

static void K(silu)(int64_t n, const float *x, float *y) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(y + i, v_silu(v_load(x + i)));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, v_silu(v_load_n(x + i, rest)), rest);
    }
}

static void K(swiglu)(int64_t n, const float *gate, const float *up, float *y) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH)
        v_store(y + i, v_mul(v_silu(v_load(gate + i)), v_load(up + i)));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(y + i, v_mul(v_silu(v_load_n(gate + i, rest)), v_load_n(up + i, rest)), rest);
    }
}

#endif
