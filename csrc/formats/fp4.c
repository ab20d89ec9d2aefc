#include "formats/fp4.h"

#include <string.h>

#include "formats/encode.h"
#include "formats/f16.h"

enum { BLOCK = 32 };

static const float curve[16] = {PYG_IQ4_CURVE};
static const float twice[16] = {PYG_E2M1_TWICE};

/* Nibbles of n / 2 bytes, times a scale: low ones first, then high ones. */
static void look_up(const float *table, float scale, const uint8_t *q, int n, float *y) {
    for (int i = 0; i < n / 2; i++) {
        y[i] = scale * table[q[i] & 15];
        y[i + n / 2] = scale * table[q[i] >> 4];
    }
}

static void put_nibble(int i, int code, uint8_t *q) {
    q[i % 16] |= (uint8_t)(code << 4 * (i / 16));
}

/* ---- iq4_nl, iq4_xs ---- */

void pyg_iq4_nl_decode(const void *block, float *y) {
    pyg_iq4_nl b;
    memcpy(&b, block, sizeof b);
    look_up(curve, pyg_f16_decode(b.d), b.q, BLOCK, y);
}

void pyg_iq4_xs_decode(const void *block, float *y) {
    pyg_iq4_xs b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d);
    for (int g = 0; g < 8; g++) {
        const int low = b.low[g / 2] >> 4 * (g % 2) & 15, high = b.high >> 2 * g & 3;
        look_up(curve, d * (float)((low | high << 4) - 32), b.q + 16 * g, BLOCK, y + BLOCK * g);
    }
}

void pyg_iq4_nl_encode(const float *x, void *block) {
    pyg_iq4_nl b = {.d = PYG_HALF_NAN};
    if (pyg_all_finite(x, BLOCK)) {
        const float d = pyg_extreme(x, BLOCK) / curve[0];
        const float inverse = pyg_reciprocal(d);
        b.d = pyg_f16_encode(d);
        for (int i = 0; i < BLOCK; i++) {
            const float t = x[i] * inverse;
            int code = 0;
            for (int c = 1; c < 16; c++) code += t >= 0.5f * (curve[c - 1] + curve[c]);
            put_nibble(i, code, b.q);
        }
    }
    memcpy(block, &b, sizeof b);
}

/* ---- mxfp4, nvfp4 ---- */

/* The bits of m * 2^k, for m = 0 or m = 0.5 .. 12 of few bits: exact where the result is denormal,
 * infinity past the largest. Integer steps, so that FTZ and DAZ do not matter. */
static uint32_t scaled_bits(float m, int k) {
    const uint32_t bits = pyg_bits_of(m);
    const int e = (int)(bits >> 23) + k;
    if (bits == 0) return 0;
    if (e >= 255) return 0x7F800000u;
    if (e > 0) return (bits & 0x7FFFFFu) | (uint32_t)e << 23;
    return ((bits & 0x7FFFFFu) | 0x800000u) >> (1 - e);
}

void pyg_mxfp4_decode(const void *block, float *y) {
    pyg_mxfp4 b;
    memcpy(&b, block, sizeof b);
    float value[16];
    for (int c = 0; c < 16; c++) {
        const uint32_t sign = pyg_bits_of(twice[c]) & 0x80000000u;
        value[c] = pyg_float_of(sign | scaled_bits(pyg_magnitude(twice[c]), b.e - 128));
    }
    for (int i = 0; i < 16; i++) {
        y[i] = value[b.q[i] & 15];
        y[i + 16] = value[b.q[i] >> 4];
    }
}

/* The steps are those of E4M3 (f8_e4m3.h), with 119 for 120 to have half the value. */
static float half_e4m3(uint8_t code) {
    const uint32_t magnitude = code & 0x7F;
    if (code == 0x7F) return 0.0f;
    if (magnitude < 8) return (float)magnitude * 0x1p-10f;
    return pyg_float_of((magnitude << 20) + (119u << 23));
}

void pyg_nvfp4_decode(const void *block, float *y) {
    pyg_nvfp4 b;
    memcpy(&b, block, sizeof b);
    for (int a = 0; a < 4; a++) look_up(twice, half_e4m3(b.d[a]), b.q + 8 * a, 16, y + 16 * a);
}

/* Floats of one sign are ordered as their bits: so the borders between codes are compared. */
void pyg_mxfp4_encode(const float *x, void *block) {
    static const float border[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
    pyg_mxfp4 b = {.e = 255};
    if (pyg_all_finite(x, BLOCK)) {
        const int exponent = (int)(pyg_bits_of(pyg_magnitude(pyg_extreme(x, BLOCK))) >> 23);
        b.e = (uint8_t)(exponent > 2 ? exponent - 2 : 0);
        uint32_t above[7];
        for (int c = 0; c < 7; c++) above[c] = scaled_bits(border[c], b.e - 128);
        for (int i = 0; i < BLOCK; i++) {
            const uint32_t bits = pyg_bits_of(x[i]);
            int code = 0;
            for (int c = 0; c < 7; c++) code += (bits & 0x7FFFFFFFu) > above[c];
            put_nibble(i, code == 0 ? 0 : code | (int)(bits >> 31) << 3, b.q);
        }
    } else {
        memset(b.q, 0x77, sizeof b.q);
    }
    memcpy(block, &b, sizeof b);
}
