/* F64 to F32, rounded to odd: a later rounding to fewer bits is then the only one that counts.
 *
 * A value that F32 does not hold becomes its neighbour toward zero with the last bit set. That bit
 * lies below what F16, BF16 and F8_E4M3 keep, denormals included, so it breaks ties as the lost
 * bits would have. Past the largest F32 the result is the largest, which every narrower format
 * rounds as it would infinity. Infinities and NaN stay. FTZ and DAZ must be off. */
#ifndef PYG_FORMATS_F64_H
#define PYG_FORMATS_F64_H

#include "formats/bits.h"

static inline float pyg_f64_to_odd(double x) {
    const float near = (float)x;
    const double back = (double)near;
    if (back == x || x != x) return near;
    uint32_t bits = pyg_bits_of(near);
    const double over = back < 0.0 ? x - back : back - x; /* only its sign counts */
    if (over > 0.0 && (bits & 0x7FFFFFFFu) != 0) bits--;  /* one toward zero; from infinity too */
    return pyg_float_of(bits | 1);
}

#endif
