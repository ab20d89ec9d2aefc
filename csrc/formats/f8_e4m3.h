/* F8_E4M3, the "fn" form of the OCP 8-bit floating point specification (OFP8, 2023): this file
 * defines it.
 *
 *     bit     7   6 5 4 3   2 1 0
 *             S   E E E E   M M M        bias 7, no infinity
 *
 *     code (S = 0)    value
 *     0x00            0
 *     0x01 .. 0x07    M * 2^-9           subnormal
 *     0x08 .. 0x7E    (8 + M) * 2^(E - 10)   largest 448 = 0x7E
 *     0x7F            NaN
 *
 * Encoding rounds once, to nearest even; |x| >= 448 and infinities give 0x7E with the sign, NaN
 * gives 0x7F with the sign, zeros keep theirs. Integer steps only, so FTZ, DAZ and the rounding
 * mode do not matter. */
#ifndef PYG_FORMATS_F8_E4M3_H
#define PYG_FORMATS_F8_E4M3_H

#include "formats/bits.h"

static inline float pyg_f8_e4m3_decode(uint8_t code) {
    const uint32_t sign = (uint32_t)(code & 0x80) << 24;
    const uint32_t magnitude = code & 0x7F;
    if (magnitude == 0x7F) return pyg_float_of(sign | 0x7FC00000u);
    /* subnormals: a small integer times a power of two, both normal floats */
    if (magnitude < 8) return pyg_float_of(sign | pyg_bits_of((float)magnitude * 0x1p-9f));
    /*  f8  bits  6543 210                     E + 120 is the F32 exponent (bias 127 - 7)
     *  f32 bits  30..23 22..20                so: move by 20, add 120 at bit 23 */
    return pyg_float_of(sign | ((magnitude << 20) + (120u << 23)));
}

static inline uint8_t pyg_f8_e4m3_encode(float x) {
    const uint32_t bits = pyg_bits_of(x);
    const uint32_t sign = (bits >> 24) & 0x80;
    uint32_t a = bits & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint8_t)(sign | 0x7F);
    if (a >= 0x43E00000u) return (uint8_t)(sign | 0x7E); /* 448 and above */
    if (a >= 0x3C800000u) {                              /* 2^-6 and above: normal */
        /*  bits  22 21 20 | 19 ............ 0
         *         M  M  M | dropped             half of the last kept bit is 2^19: add one less
         * than that plus the kept bit, and ties go to even */
        a += 0x7FFFFu + ((a >> 20) & 1);
        return (uint8_t)(sign | ((a >> 20) - (120u << 3)));
    }
    /* subnormal: a = mantissa * 2^(e - 150) counted in steps of 2^-9, shift = 141 - e is 21 .. 24
     */
    const uint32_t e = a >> 23;
    if (e < 117) return (uint8_t)sign; /* below 2^-10, half a step */
    const uint32_t shift = 141 - e;
    const uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u;
    const uint32_t rounded = mantissa + (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1);
    return (uint8_t)(sign | (rounded >> shift));
}

#endif
