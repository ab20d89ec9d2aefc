/* F16, IEEE 754 binary16: this file defines it.
 *
 *     bit     15   14 13 12 11 10   9 .. 0
 *              S    E  E  E  E  E   M          bias 15
 *
 *     E = 0           M * 2^-24                subnormal
 *     E = 1 .. 30     (1024 + M) * 2^(E - 25)  largest 65504
 *     E = 31          infinity (M = 0), NaN
 *
 * Encoding rounds once, to nearest even; 65520 and above give infinity. NaN stays NaN with its sign
 * and the upper payload bits and becomes quiet, in both directions, as the F16C instructions do it.
 */
#ifndef PYG_FORMATS_F16_H
#define PYG_FORMATS_F16_H

#include "formats/bits.h"

static inline float pyg_f16_decode(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t magnitude = half & 0x7FFF;
    if (magnitude > 0x7C00) return pyg_float_of(sign | 0x7FC00000u | (magnitude << 13));
    if (magnitude == 0x7C00) return pyg_float_of(sign | 0x7F800000u);
    /* subnormals: a small integer times a power of two, both normal floats */
    if (magnitude < 0x400) return pyg_float_of(sign | pyg_bits_of((float)magnitude * 0x1p-24f));
    return pyg_float_of(sign | ((magnitude << 13) + (112u << 23)));
}

static inline uint16_t pyg_f16_encode(float x) {
    const uint32_t bits = pyg_bits_of(x);
    const uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t a = bits & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00 | ((a >> 13) & 0x3FF));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7C00); /* 65536 and above */
    if (a >= 0x38800000u) {                                 /* 2^-14 and above: normal */
        /* 13 bits are dropped; from 65520 the carry runs into E = 31, which is infinity */
        a += 0xFFFu + ((a >> 13) & 1);
        return (uint16_t)(sign | ((a >> 13) - (112u << 10)));
    }
    /* subnormal: a = mantissa * 2^(e - 150) counted in steps of 2^-24, shift = 126 - e is 14 .. 24
     */
    const uint32_t e = a >> 23;
    if (e < 102) return (uint16_t)sign; /* below 2^-25, half a step */
    const uint32_t shift = 126 - e;
    const uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u;
    const uint32_t rounded = mantissa + (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1);
    return (uint16_t)(sign | (rounded >> shift));
}

#endif
