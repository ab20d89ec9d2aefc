/* The K formats: 256 elements in 8 groups of 32, whose own scales are small integers times one or
 * two halves. This file, k_quants.c and k_encode.c define them. Source of the layouts: ggml's
 * public block definitions (ggml-common.h) and the decoder of the gguf package.
 *
 *     q2_k    84 bytes   sm[16], q[64], d, dmin            w = d * s * quant - dmin * m
 *     q3_k   110 bytes   high[32], q[64], s6[12], d        w = d * (s - 32) * (quant - 4)
 *     q4_k   144 bytes   d, dmin, sm6[12], q[128]          w = d * s * quant - dmin * m
 *     q5_k   176 bytes   d, dmin, sm6[12], high[32], q[128]
 *     q6_k   210 bytes   low[128], high[64], s[16], d      w = d * s * (quant - 32), s signed
 *
 * Element i of group g = 4 h + k (h the half of 128 elements, k = 0 .. 3) has its bits in
 *
 *     q2_k   bits 2k, 2k+1 of q[32 h + i]
 *     q3_k   bits 2k, 2k+1 of q[32 h + i], then bit g of high[i]
 *     q4_k   nibble g % 2 of q[32 (g / 2) + i]
 *     q5_k   nibble g % 2 of q[32 (g / 2) + i], then bit g of high[i]
 *     q6_k   nibble k / 2 of low[64 h + 32 (k % 2) + i], then bits 2k, 2k+1 of high[32 h + i]
 *
 * s and m are per 32 elements in q4_k and q5_k, per 16 elsewhere: a is 2 g or 2 g + 1.
 *
 *     sm     byte a: low nibble s, high nibble m
 *     s6     s[a]: nibble a / 8 of byte a % 8, then bits 2 (a / 4), .. + 1 of byte 8 + a % 4
 *     sm6    byte    7 6   5 4   3 .. 0
 *            j       S[j+4]  s[j]           s[j]: low six bits, S: the upper two of s[j+4]
 *            j + 4   M[j+4]  m[j]           the same for m
 *            j + 8   m[j+4]      s[j+4]     their lower four bits; j = 0 .. 3
 *
 * Products of a half, a scale and a quant are exact in F32, so a value has at most one rounding
 * (the subtraction). Encoding is plain rounding to nearest: each group's range gives its scale (and
 * offset), the largest of them the halves, and quants are chosen against the scales as stored. A
 * block that holds a NaN or an infinity gets NaN halves and zeros else. Halves that overflow give a
 * block of NaN and infinities; nothing is undefined. Blocks need no alignment. */
#ifndef PYG_FORMATS_K_QUANTS_H
#define PYG_FORMATS_K_QUANTS_H

#include <stdint.h>

enum { PYG_K_ELEMENTS = 256 };

typedef struct pyg_q2_k {
    uint8_t scales[16], q[64];
    uint16_t d, dmin;
} pyg_q2_k;

typedef struct pyg_q3_k {
    uint8_t high[32], q[64], scales[12];
    uint16_t d;
} pyg_q3_k;

typedef struct pyg_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12], q[128];
} pyg_q4_k;

typedef struct pyg_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12], high[32], q[128];
} pyg_q5_k;

typedef struct pyg_q6_k {
    uint8_t low[128], high[64];
    int8_t scales[16];
    uint16_t d;
} pyg_q6_k;

_Static_assert(sizeof(pyg_q2_k) == 84, "q2_k is 84 bytes");
_Static_assert(sizeof(pyg_q3_k) == 110, "q3_k is 110 bytes");
_Static_assert(sizeof(pyg_q4_k) == 144, "q4_k is 144 bytes");
_Static_assert(sizeof(pyg_q5_k) == 176, "q5_k is 176 bytes");
_Static_assert(sizeof(pyg_q6_k) == 210, "q6_k is 210 bytes");

/* One block of 256 values. */
void pyg_q4_k_encode(const float *x, void *block);
void pyg_q5_k_encode(const float *x, void *block);
void pyg_q6_k_encode(const float *x, void *block);
void pyg_q2_k_decode(const void *block, float *y);
void pyg_q3_k_decode(const void *block, float *y);
void pyg_q4_k_decode(const void *block, float *y);
void pyg_q5_k_decode(const void *block, float *y);
void pyg_q6_k_decode(const void *block, float *y);

#endif
