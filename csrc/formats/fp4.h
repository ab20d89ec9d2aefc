/* Formats whose nibbles are codes of a table: IQ4_NL and IQ4_XS (a curve of 16 integers), MXFP4 and
 * NVFP4 (E2M1, a four-bit float). This file and fp4.c define them. Sources: ggml's public block
 * definitions and the decoder of the gguf package; OCP Microscaling Formats (MX) 1.0.
 *
 *     iq4_nl   18 bytes,  32 elements   d, q[16]                  w = d * curve[code]
 *     iq4_xs  136 bytes, 256 elements   d, high, low[4], q[128]   w = d * (s - 32) * curve[code]
 *     mxfp4    17 bytes,  32 elements   e, q[16]                  w = 2^(e - 128) * twice[code]
 *     nvfp4    36 bytes,  64 elements   d[4], q[32]               w = half(d[a]) * twice[code]
 *
 *     code       0    1    2    3    4    5    6    7    8    9   10   11   12   13   14   15
 *     curve   -127 -104  -83  -65  -49  -35  -22  -10    1   13   25   38   53   69   89  113
 *     twice      0    1    2    3    4    6    8   12    0   -1   -2   -3   -4   -6   -8  -12
 *
 * Element i < 16 of a group of 32 is the low nibble of q[i], element i + 16 the high one; in nvfp4
 * groups have 16 elements and halves of 8. The d of iq4_nl and iq4_xs is an F16; s of group g of
 * iq4_xs is nibble g % 2 of low[g / 2], then bits 2g, 2g+1 of `high` (16 bits, little endian).
 *
 * mxfp4: all 256 exponents are powers of two, 255 too (MX calls it NaN, ggml does not); 12 * 2^127
 * overflows to infinity. nvfp4: d is an E4M3 without sign (bit 7 is not read), 0x7F is zero, 0xFF
 * is 480; half(d) is half its value. All products are exact.
 *
 * Encoding rounds to nearest. iq4_nl: the first of largest magnitude becomes -127, ties go up the
 * curve; a block with a NaN or infinity gets d = NaN. mxfp4: e makes the largest 4 .. 8 units, ties
 * and what is beyond 6 units go toward zero; such a block gets e = 255 and codes 7, which decode to
 * infinity, since the format holds no NaN. Blocks need no alignment. */
#ifndef PYG_FORMATS_FP4_H
#define PYG_FORMATS_FP4_H

#include <stdint.h>

enum { PYG_NVFP4_ELEMENTS = 64 };

typedef struct pyg_iq4_nl {
    uint16_t d;
    uint8_t q[16];
} pyg_iq4_nl;

typedef struct pyg_iq4_xs {
    uint16_t d, high;
    uint8_t low[4], q[128];
} pyg_iq4_xs;

typedef struct pyg_mxfp4 {
    uint8_t e, q[16];
} pyg_mxfp4;

typedef struct pyg_nvfp4 {
    uint8_t d[4], q[32];
} pyg_nvfp4;

_Static_assert(sizeof(pyg_iq4_nl) == 18, "iq4_nl is 18 bytes");
_Static_assert(sizeof(pyg_iq4_xs) == 136, "iq4_xs is 136 bytes");
_Static_assert(sizeof(pyg_mxfp4) == 17, "mxfp4 is 17 bytes");
_Static_assert(sizeof(pyg_nvfp4) == 36, "nvfp4 is 36 bytes");

/* The two tables of the head. */
#define PYG_IQ4_CURVE -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define PYG_E2M1_TWICE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* One block. */
void pyg_iq4_nl_encode(const float *x, void *block);
void pyg_mxfp4_encode(const float *x, void *block);
void pyg_iq4_nl_decode(const void *block, float *y);
void pyg_iq4_xs_decode(const void *block, float *y);
void pyg_mxfp4_decode(const void *block, float *y);
void pyg_nvfp4_decode(const void *block, float *y);

#endif
