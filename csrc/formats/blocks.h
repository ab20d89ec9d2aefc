/* Block formats Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1: 32 elements share one or two halves. This file and
 * blocks.c define them.
 *
 *     q8_0   34 bytes   d, q[32]          w[i] = d * q[i]                 q = -127 .. 127
 *     q4_0   18 bytes   d, q[16]          w[i] = d * (nibble[i] - 8)
 *     q4_1   20 bytes   d, m, q[16]       w[i] = d * nibble[i] + m
 *     q5_0   22 bytes   d, h[4], q[16]    w[i] = d * (nibble[i] + 16 * bit[i] - 16)
 *     q5_1   24 bytes   d, m, h[4], q[16] w[i] = d * (nibble[i] + 16 * bit[i]) + m
 *
 *     nibble[i]      = low four bits of q[i]     for i < 16
 *     nibble[i + 16] = high four bits of q[i]
 *     bit[i]         = bit i % 8 of h[i / 8]
 *
 * d and m are F16, little endian. The products are exact in F32, so a value has at most one
 * rounding (the sum of q4_1, q5_1). Encoding gives the bytes of ggml's reference quantisation for
 * every block of finite values whose scale has a finite reciprocal; elsewhere it is defined here: a
 * block that holds a NaN or an infinity gets NaN for d (and m) and zero quants, and quants are
 * clamped to their range, a NaN quotient to its lowest value. Blocks need no alignment. */
#ifndef PYG_FORMATS_BLOCKS_H
#define PYG_FORMATS_BLOCKS_H

#include <stdint.h>

enum { PYG_BLOCK_ELEMENTS = 32 };

typedef struct pyg_q8_0 {
    uint16_t d;
    int8_t q[32];
} pyg_q8_0;

typedef struct pyg_q4_0 {
    uint16_t d;
    uint8_t q[16];
} pyg_q4_0;

typedef struct pyg_q4_1 {
    uint16_t d, m;
    uint8_t q[16];
} pyg_q4_1;

typedef struct pyg_q5_0 {
    uint16_t d;
    uint8_t high[4], q[16];
} pyg_q5_0;

typedef struct pyg_q5_1 {
    uint16_t d, m;
    uint8_t high[4], q[16];
} pyg_q5_1;

_Static_assert(sizeof(pyg_q8_0) == 34, "q8_0 is 34 bytes");
_Static_assert(sizeof(pyg_q4_0) == 18, "q4_0 is 18 bytes");
_Static_assert(sizeof(pyg_q4_1) == 20, "q4_1 is 20 bytes");
_Static_assert(sizeof(pyg_q5_0) == 22, "q5_0 is 22 bytes");
_Static_assert(sizeof(pyg_q5_1) == 24, "q5_1 is 24 bytes");

/* One block of 32 values. */
void pyg_q8_0_encode(const float *x, void *block);
void pyg_q4_0_encode(const float *x, void *block);
void pyg_q4_1_encode(const float *x, void *block);
void pyg_q5_0_encode(const float *x, void *block);
void pyg_q5_1_encode(const float *x, void *block);
void pyg_q8_0_decode(const void *block, float *y);
void pyg_q4_0_decode(const void *block, float *y);
void pyg_q4_1_decode(const void *block, float *y);
void pyg_q5_0_decode(const void *block, float *y);
void pyg_q5_1_decode(const void *block, float *y);

#endif
