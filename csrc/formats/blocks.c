#include "formats/blocks.h"

#include <float.h>
#include <string.h>

#include "formats/encode.h"
#include "formats/f16.h"

/* The encodings follow the formulas of ggml's reference quantisation (ggml-quants.c), written anew.
 */

void pyg_q8_0_encode(const float *x, void *block) {
    pyg_q8_0 b = {.d = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_BLOCK_ELEMENTS)) {
        float largest = 0.0f;
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
            if (pyg_magnitude(x[i]) > largest) largest = pyg_magnitude(x[i]);
        const float d = largest / 127.0f;
        const float inverse = pyg_reciprocal(d);
        b.d = pyg_f16_encode(d);
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
            b.q[i] = (int8_t)pyg_round_half_away(pyg_clamp(x[i] * inverse, -127.0f, 127.0f));
    }
    memcpy(block, &b, sizeof b);
}

void pyg_q4_0_encode(const float *x, void *block) {
    pyg_q4_0 b = {.d = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_BLOCK_ELEMENTS)) {
        const float d = pyg_extreme(x, PYG_BLOCK_ELEMENTS) / -8.0f; /* the extreme becomes -8 */
        const float inverse = pyg_reciprocal(d);
        b.d = pyg_f16_encode(d);
        for (int i = 0; i < 16; i++) {
            const int low = (int)pyg_clamp(x[i] * inverse + 8.5f, 0.0f, 15.0f);
            const int high = (int)pyg_clamp(x[i + 16] * inverse + 8.5f, 0.0f, 15.0f);
            b.q[i] = (uint8_t)(low | high << 4);
        }
    }
    memcpy(block, &b, sizeof b);
}

static void range(const float *x, float *least, float *most) {
    *least = FLT_MAX;
    *most = -FLT_MAX;
    for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++) {
        if (x[i] < *least) *least = x[i];
        if (x[i] > *most) *most = x[i];
    }
}

void pyg_q4_1_encode(const float *x, void *block) {
    pyg_q4_1 b = {.d = PYG_HALF_NAN, .m = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_BLOCK_ELEMENTS)) {
        float least, most;
        range(x, &least, &most);
        const float d = (most - least) / 15.0f;
        const float inverse = pyg_reciprocal(d);
        b.d = pyg_f16_encode(d);
        b.m = pyg_f16_encode(least);
        for (int i = 0; i < 16; i++) {
            const int low = (int)pyg_clamp((x[i] - least) * inverse + 0.5f, 0.0f, 15.0f);
            const int high = (int)pyg_clamp((x[i + 16] - least) * inverse + 0.5f, 0.0f, 15.0f);
            b.q[i] = (uint8_t)(low | high << 4);
        }
    }
    memcpy(block, &b, sizeof b);
}

/* Quant i of 0 .. 31: four bits in q, the fifth in `high`. */
static void put5(int i, float quant, uint8_t *q, uint8_t *high) {
    const int n = (int)pyg_clamp(quant, 0.0f, 31.0f);
    q[i % 16] |= (uint8_t)((n & 15) << 4 * (i / 16));
    high[i / 8] |= (uint8_t)(n >> 4 << i % 8);
}

void pyg_q5_0_encode(const float *x, void *block) {
    pyg_q5_0 b = {.d = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_BLOCK_ELEMENTS)) {
        const float d = pyg_extreme(x, PYG_BLOCK_ELEMENTS) / -16.0f;
        const float inverse = pyg_reciprocal(d);
        b.d = pyg_f16_encode(d);
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++) put5(i, x[i] * inverse + 16.5f, b.q, b.high);
    }
    memcpy(block, &b, sizeof b);
}

void pyg_q5_1_encode(const float *x, void *block) {
    pyg_q5_1 b = {.d = PYG_HALF_NAN, .m = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_BLOCK_ELEMENTS)) {
        float least, most;
        range(x, &least, &most);
        const float d = (most - least) / 31.0f;
        const float inverse = pyg_reciprocal(d);
        b.d = pyg_f16_encode(d);
        b.m = pyg_f16_encode(least);
        for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++)
            put5(i, (x[i] - least) * inverse + 0.5f, b.q, b.high);
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

static float get5(int i, const uint8_t *q, const uint8_t *high) {
    return (float)((q[i % 16] >> 4 * (i / 16) & 15) | (high[i / 8] >> i % 8 & 1) << 4);
}

void pyg_q5_0_decode(const void *block, float *y) {
    pyg_q5_0 b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d);
    for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++) y[i] = d * (get5(i, b.q, b.high) - 16.0f);
}

void pyg_q5_1_decode(const void *block, float *y) {
    pyg_q5_1 b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d), m = pyg_f16_decode(b.m);
    for (int i = 0; i < PYG_BLOCK_ELEMENTS; i++) y[i] = d * get5(i, b.q, b.high) + m;
}
