#include "formats/blocks.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

#include "formats/f16.h"

/* The encodings follow the formulas of ggml's reference quantisation (ggml-quants.c), written anew.
 */

#define HALF_NAN 0x7E00

static bool all_finite(const float *x) {
    for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
        if ((pyg_bits_of(x[i]) & 0x7F800000u) == 0x7F800000u) return false;
    return true;
}

static float magnitude(float x) { return pyg_float_of(pyg_bits_of(x) & 0x7FFFFFFFu); }

static float reciprocal(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/* NaN goes to `low`: a conversion of NaN or of a huge value to an integer is undefined in C. */
static float clamp(float x, float low, float high) {
    const float raised = x > low ? x : low;
    return raised < high ? raised : high;
}

/* Nearest integer, halves away from zero; |x| <= 127. The difference is exact. */
static int round_half_away(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

void pyg_q8_0_encode(const float *x, void *block) {
    pyg_q8_0 b = {.d = HALF_NAN};
    if (all_finite(x)) {
        float largest = 0.0f;
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
            if (magnitude(x[i]) > largest) largest = magnitude(x[i]);
        const float d = largest / 127.0f;
        const float inverse = reciprocal(d);
        b.d = pyg_f16_encode(d);
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
            b.q[i] = (int8_t)round_half_away(clamp(x[i] * inverse, -127.0f, 127.0f));
    }
    memcpy(block, &b, sizeof b);
}

void pyg_q4_0_encode(const float *x, void *block) {
    pyg_q4_0 b = {.d = HALF_NAN};
    if (all_finite(x)) {
        float extreme = 0.0f; /* the first of largest magnitude, with its sign: it becomes -8 */
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
            if (magnitude(x[i]) > magnitude(extreme)) extreme = x[i];
        const float d = extreme / -8.0f;
        const float inverse = reciprocal(d);
        b.d = pyg_f16_encode(d);
        for (int i = 0; i < 16; i++) {
            const int low = (int)clamp(x[i] * inverse + 8.5f, 0.0f, 15.0f);
            const int high = (int)clamp(x[i + 16] * inverse + 8.5f, 0.0f, 15.0f);
            b.q[i] = (uint8_t)(low | high << 4);
        }
    }
    memcpy(block, &b, sizeof b);
}

void pyg_q4_1_encode(const float *x, void *block) {
    pyg_q4_1 b = {.d = HALF_NAN, .m = HALF_NAN};
    if (all_finite(x)) {
        float least = FLT_MAX, most = -FLT_MAX;
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++) {
            if (x[i] < least) least = x[i];
            if (x[i] > most) most = x[i];
        }
        const float d = (most - least) / 15.0f;
        const float inverse = reciprocal(d);
        b.d = pyg_f16_encode(d);
        b.m = pyg_f16_encode(least);
        for (int i = 0; i < 16; i++) {
            const int low = (int)clamp((x[i] - least) * inverse + 0.5f, 0.0f, 15.0f);
            const int high = (int)clamp((x[i + 16] - least) * inverse + 0.5f, 0.0f, 15.0f);
            b.q[i] = (uint8_t)(low | high << 4);
        }
    }
    memcpy(block, &b, sizeof b);
}

void pyg_q8_0_decode(const void *block, float *y) {
    pyg_q8_0 b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d);
    for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++) y[i] = d * (float)b.q[i];
}

void pyg_q4_0_decode(const void *block, float *y) {
    pyg_q4_0 b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b.q[i] & 15) - 8);
        y[i + 16] = d * (float)((b.q[i] >> 4) - 8);
    }
}

void pyg_q4_1_decode(const void *block, float *y) {
    pyg_q4_1 b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d), m = pyg_f16_decode(b.m);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(b.q[i] & 15) + m;
        y[i + 16] = d * (float)(b.q[i] >> 4) + m;
    }
}
