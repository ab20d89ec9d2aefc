/* BF16: the upper half of an F32. This file defines it.
 *
 *     bit     15   14 .. 7   6 .. 0
 *              S      E        M       bias 127, as F32
 *
 * Decoding moves the bits and changes nothing else. Encoding rounds once, to nearest even; what
 * rounds past the largest finite value becomes infinity. NaN keeps its sign and upper payload bits
 * and becomes quiet. */
#ifndef PYG_FORMATS_BF16_H
#define PYG_FORMATS_BF16_H

#include "formats/bits.h"

static inline float pyg_bf16_decode(uint16_t code) { return pyg_float_of((uint32_t)code << 16); }

static inline uint16_t pyg_bf16_encode(float x) {
    const uint32_t bits = pyg_bits_of(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40);
    /* half of the last kept bit is 2^15; the carry may run into the exponent, up to infinity */
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

#endif
