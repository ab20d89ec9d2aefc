/* A float seen as its 32 bits. Used by every format here; copies, so no aliasing rule is broken. */
#ifndef PYG_FORMATS_BITS_H
#define PYG_FORMATS_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t pyg_bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float pyg_float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
