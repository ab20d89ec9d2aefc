/* What the encoders of the block formats share. Nothing here depends on the rounding mode or traps:
 * a conversion of NaN or of a huge value to an integer, undefined in C, is clamped away first. */
#ifndef PYG_FORMATS_ENCODE_H
#define PYG_FORMATS_ENCODE_H

#include <stdbool.h>

#include "formats/bits.h"

#define PYG_HALF_NAN 0x7E00 /* the F16 scale of a block that holds a NaN or an infinity */

/* Every one of n values is finite. */
static inline bool pyg_all_finite(const float *x, int n) {
    for (int i = 0; i < n; i++)
        if ((pyg_bits_of(x[i]) & 0x7F800000u) == 0x7F800000u) return false;
    return true;
}

static inline float pyg_magnitude(float x) { return pyg_float_of(pyg_bits_of(x) & 0x7FFFFFFFu); }

/* The first value of largest magnitude, with its sign; +0 when all are zeros. */
static inline float pyg_extreme(const float *x, int n) {
    float extreme = 0.0f;
    for (int i = 0; i < n; i++)
        if (pyg_magnitude(x[i]) > pyg_magnitude(extreme)) extreme = x[i];
    return extreme;
}

static inline float pyg_reciprocal(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/* x cut to low .. high; NaN goes to `low`. */
static inline float pyg_clamp(float x, float low, float high) {
    const float raised = x > low ? x : low;
    return raised < high ? raised : high;
}

/* Nearest integer, halves away from zero; |x| <= 128. The difference is exact. */
static inline int pyg_round_half_away(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

#endif
