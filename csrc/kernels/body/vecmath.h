/* exp, log, sin, cos, tanh and the activations made from them, a vector at a time. */
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

/* x * sigmoid(z), z of the sign of x, with e = exp(-|z|) so that no exp overflows:
 * x * (x < 0 ? e : 1) / (1 + e). The lower bound makes the limit at -inf -0 and not -inf * 0. */
V_INLINE v_f32 v_gated(v_f32 x, v_f32 z) {
    const v_f32 one = v_set1(1.0f), e = v_exp(v_neg(v_abs(z)));
    const v_f32 bounded = v_max(v_set1(-0x1.fffffep127f), x);
    const v_f32 share = v_select(v_lt(x, v_set1(0.0f)), e, one);
    return v_div(v_mul(bounded, share), v_add(one, e));
}

V_INLINE v_f32 v_silu(v_f32 x) { return v_gated(x, x); }

V_INLINE v_f32 v_sigmoid(v_f32 x) {
    const v_f32 one = v_set1(1.0f), e = v_exp(v_neg(v_abs(x)));
    return v_div(v_select(v_lt(x, v_set1(0.0f)), e, one), v_add(one, e));
}

/* (1 + tanh(u)) / 2 = sigmoid(2 u); 2 sqrt(2 / pi) and 0.044715 times that are in the constants. */
V_INLINE v_f32 v_gelu(v_f32 x) {
    const v_f32 inner = v_fma(v_mul(x, x), v_set1(0x1.2444f2p-4f), v_set1(0x1.988454p+0f));
    return v_gated(x, v_mul(x, inner));
}

V_INLINE v_f32 v_gelu_quick(v_f32 x) { return v_gated(x, v_mul(v_set1(1.702f), x)); }

/* x Phi(x), Phi the normal distribution. Phi(-a) = exp(-a^2 / 2) M(a) keeps its relative accuracy
 * where 1 + erf would cancel. M(a) = u m(u), u = 1 / (1 + 0.3 a), m of degree 9 fitted over a <
 * 15.5 as exp was: relative error 4e-9. a^2 is exact in its coarse part; the rest has an exp of
 * its own. */
V_INLINE v_f32 v_gelu_erf(v_f32 x) {
    const v_f32 one = v_set1(1.0f), half = v_set1(-0.5f);
    const v_f32 a = v_min(v_set1(15.0f), v_abs(x)), h = v_coarse(a);
    const v_f32 rest = v_mul(v_sub(a, h), v_add(a, h));
    const v_f32 e = v_mul(v_exp(v_mul(half, v_mul(h, h))), v_exp(v_mul(half, rest)));
    const v_f32 u = v_div(one, v_fma(v_set1(0.3f), a, one));
    v_f32 m = v_set1(-0x1.51fd82p-6f);
    m = v_fma(m, u, v_set1(0x1.ccabfep-4f));
    m = v_fma(m, u, v_set1(-0x1.d38c8p-3f));
    m = v_fma(m, u, v_set1(0x1.89027ap-3f));
    m = v_fma(m, u, v_set1(-0x1.45bb1cp-4f));
    m = v_fma(m, u, v_set1(0x1.8a17ap-4f));
    m = v_fma(m, u, v_set1(0x1.40ff98p-4f));
    m = v_fma(m, u, v_set1(0x1.c38b32p-4f));
    m = v_fma(m, u, v_set1(0x1.e9c38p-4f));
    m = v_fma(m, u, v_set1(0x1.ea3cap-4f));
    m = v_mul(m, u);
    const v_f32 bounded = v_max(v_set1(-0x1.fffffep127f), x);
    const v_f32 above = v_mul(x, v_sub(one, v_mul(e, m)));
    return v_select(v_lt(x, v_set1(0.0f)), v_mul(v_mul(bounded, m), e), above);
}

/* log(2^k (1 + f)) for sqrt 1/2 <= 1 + f < sqrt 2: f - f^2 / 2 + f^3 p(f) + k ln 2, p of degree 7
 * fitted as above: relative error 6e-9. ln 2 is in two parts, k times the first exact. */
V_INLINE v_f32 v_log_of(v_f32 f, v_f32 k) {
    v_f32 p = v_set1(-0x1.38c968p-4f);
    p = v_fma(p, f, v_set1(0x1.055eacp-3f));
    p = v_fma(p, f, v_set1(-0x1.0d8246p-3f));
    p = v_fma(p, f, v_set1(0x1.22d93p-3f));
    p = v_fma(p, f, v_set1(-0x1.54728ap-3f));
    p = v_fma(p, f, v_set1(0x1.99a01cp-3f));
    p = v_fma(p, f, v_set1(-0x1.000226p-2f));
    p = v_fma(p, f, v_set1(0x1.555554p-2f));
    const v_f32 f2 = v_mul(f, f);
    v_f32 t = v_fma(v_mul(p, f), f2, v_mul(k, v_set1(0x1.7f7d1cp-20f)));
    t = v_fma(v_set1(-0.5f), f2, t);
    return v_fma(k, v_set1(0x1.62e4p-1f), v_add(f, t));
}

/* Denormals are brought into range by 2^25. */
V_INLINE v_f32 v_log(v_f32 x) {
    const v_f32 zero = v_set1(0.0f), one = v_set1(1.0f);
    const v_mask tiny = v_lt(x, v_set1(0x1p-126f));
    v_f32 k;
    const v_f32 m = v_split(v_select(tiny, v_mul(x, v_set1(0x1p25f)), x), &k);
    k = v_sub(k, v_select(tiny, v_set1(25.0f), zero));
    v_f32 y = v_log_of(v_sub(m, one), k);
    y = v_select(v_lt(x, v_set1(INFINITY)), y, x); /* NaN and +inf */
    y = v_select(v_lt(x, zero), v_bits(0x7FC00000u), y);
    return v_select(v_eq(x, zero), v_set1(-INFINITY), y);
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|) <= 1: 1 + e is 2 (1 + (e - 1) / 2) where
 * it passes sqrt 2. */
V_INLINE v_f32 v_softplus(v_f32 x) {
    const v_f32 zero = v_set1(0.0f), one = v_set1(1.0f), e = v_exp(v_neg(v_abs(x)));
    const v_mask high = v_lt(v_set1(0x1.a8p-2f), e);
    const v_f32 f = v_select(high, v_mul(v_sub(e, one), v_set1(0.5f)), e);
    return v_add(v_max(zero, x), v_log_of(f, v_select(high, one, zero)));
}

/* a + a^3 p(a^2) below 0.625, p of degree 4 fitted as above (5e-9); else 1 - 2 / (exp(2 a) + 1). */
V_INLINE v_f32 v_tanh(v_f32 x) {
    const v_f32 a = v_abs(x), a2 = v_mul(a, a), one = v_set1(1.0f), two = v_set1(2.0f);
    v_f32 p = v_set1(-0x1.75619ap-8f);
    p = v_fma(p, a2, v_set1(0x1.5207b8p-6f));
    p = v_fma(p, a2, v_set1(-0x1.b83738p-5f));
    p = v_fma(p, a2, v_set1(0x1.1106fcp-3f));
    p = v_fma(p, a2, v_set1(-0x1.555532p-2f));
    const v_f32 near = v_fma(v_mul(p, a2), a, a);
    const v_f32 far = v_sub(one, v_div(two, v_add(v_exp(v_mul(two, a)), one)));
    return v_flip(v_select(v_lt(a, v_set1(0.625f)), near, far), x);
}

/* sin(x + first pi / 2). What is left of x after whole quarter turns goes through r + r^3 p(r^2) or
 * 1 - r^2 / 2 + r^4 q(r^2), of degree 2, fitted as above over |r| <= pi / 4: 4e-9. */
V_INLINE v_f32 v_sin_from(v_f32 x, int first) {
    v_mask odd;
    v_f32 sign;
    const v_f32 r = v_quarters(x, first, &odd, &sign), r2 = v_mul(r, r);
    v_f32 p = v_set1(-0x1.9954p-13f), q = v_set1(0x1.99e91p-16f);
    p = v_fma(p, r2, v_set1(0x1.110778p-7f));
    p = v_fma(p, r2, v_set1(-0x1.555546p-3f));
    q = v_fma(q, r2, v_set1(-0x1.6c0c2ap-10f));
    q = v_fma(q, r2, v_set1(0x1.55554ap-5f));
    const v_f32 s = v_fma(v_mul(p, r2), r, r);
    const v_f32 c = v_fma(v_mul(q, r2), r2, v_fma(v_set1(-0.5f), r2, v_set1(1.0f)));
    return v_flip(v_select(odd, c, s), sign);
}

/* sin(-x) = -sin(x) keeps the sign of zero. */
V_INLINE v_f32 v_sin(v_f32 x) { return v_flip(v_sin_from(v_abs(x), 0), x); }
V_INLINE v_f32 v_cos(v_f32 x) { return v_sin_from(v_abs(x), 1); }

#endif
