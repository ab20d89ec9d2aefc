/* The encoders of k_quants.h: plain rounding to nearest, no search for better scales. */
#include "formats/k_quants.h"

#include <string.h>

#include "formats/encode.h"
#include "formats/f16.h"

/* ---- q4_k, q5_k: quants of 0 .. top times a scale, less an offset ---- */

typedef struct affine {
    uint16_t d, dmin;
    uint8_t scale[8], min[8]; /* 0 .. 63 */
    uint8_t q[PYG_K_ELEMENTS];
} affine;

/* The range of a group, widened to hold zero below: offsets are subtracted and have no sign. */
static void group_range(const float *x, float top, float *scale, float *min) {
    float least = 0.0f, most = x[0];
    for (int i = 0; i < 32; i++) {
        if (x[i] < least) least = x[i];
        if (x[i] > most) most = x[i];
    }
    *scale = (most - least) / top;
    *min = 0.0f - least;
}

static uint8_t round_to(float x, float top) { return (uint8_t)pyg_clamp(x + 0.5f, 0.0f, top); }

static void fit(const float *x, float top, affine *f) {
    float scale[8], min[8], max_scale = 0.0f, max_min = 0.0f;
    for (int g = 0; g < 8; g++) {
        group_range(x + 32 * g, top, &scale[g], &min[g]);
        if (scale[g] > max_scale) max_scale = scale[g];
        if (min[g] > max_min) max_min = min[g];
    }
    f->d = pyg_f16_encode(max_scale / 63.0f);
    f->dmin = pyg_f16_encode(max_min / 63.0f);
    const float d = pyg_f16_decode(f->d), dmin = pyg_f16_decode(f->dmin);
    const float to_scale = 63.0f * pyg_reciprocal(max_scale);
    const float to_min = 63.0f * pyg_reciprocal(max_min);
    for (int g = 0; g < 8; g++) {
        f->scale[g] = round_to(scale[g] * to_scale, 63.0f);
        f->min[g] = round_to(min[g] * to_min, 63.0f);
        const float inverse = pyg_reciprocal(d * (float)f->scale[g]);
        const float offset = dmin * (float)f->min[g];
        for (int i = 32 * g; i < 32 * (g + 1); i++)
            f->q[i] = round_to((x[i] + offset) * inverse, top);
    }
}

static void pack6(const affine *f, uint8_t *s) {
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(f->scale[j] | f->scale[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(f->min[j] | f->min[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((f->scale[j + 4] & 15) | (f->min[j + 4] & 15) << 4);
    }
}

static void pack_nibbles(const affine *f, uint8_t *q) {
    for (int i = 0; i < 128; i++) {
        const uint8_t *pair = f->q + 64 * (i / 32) + i % 32;
        q[i] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

void pyg_q4_k_encode(const float *x, void *block) {
    pyg_q4_k b = {.d = PYG_HALF_NAN, .dmin = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_K_ELEMENTS)) {
        affine f;
        fit(x, 15.0f, &f);
        b.d = f.d;
        b.dmin = f.dmin;
        pack6(&f, b.scales);
        pack_nibbles(&f, b.q);
    }
    memcpy(block, &b, sizeof b);
}

void pyg_q5_k_encode(const float *x, void *block) {
    pyg_q5_k b = {.d = PYG_HALF_NAN, .dmin = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_K_ELEMENTS)) {
        affine f;
        fit(x, 31.0f, &f);
        b.d = f.d;
        b.dmin = f.dmin;
        pack6(&f, b.scales);
        pack_nibbles(&f, b.q);
        for (int i = 0; i < PYG_K_ELEMENTS; i++) b.high[i % 32] |= (uint8_t)(f.q[i] >> 4 << i / 32);
    }
    memcpy(block, &b, sizeof b);
}

/* ---- q6_k: quants of -32 .. 31 times a signed scale ---- */

static void fit6(const float *x, pyg_q6_k *b, uint8_t *quants) {
    float scale[16];
    for (int a = 0; a < 16; a++) scale[a] = pyg_extreme(x + 16 * a, 16) / -32.0f;
    const float largest = pyg_extreme(scale, 16); /* becomes -128 */
    b->d = pyg_f16_encode(largest != 0.0f ? largest / -128.0f : 0.0f);
    const float d = pyg_f16_decode(b->d), to_scale = -128.0f * pyg_reciprocal(largest);
    for (int a = 0; a < 16; a++) {
        b->scales[a] = (int8_t)pyg_round_half_away(pyg_clamp(scale[a] * to_scale, -128.0f, 127.0f));
        const float inverse = pyg_reciprocal(d * (float)b->scales[a]);
        for (int i = 16 * a; i < 16 * (a + 1); i++)
            quants[i] =
                (uint8_t)(pyg_round_half_away(pyg_clamp(x[i] * inverse, -32.0f, 31.0f)) + 32);
    }
}

void pyg_q6_k_encode(const float *x, void *block) {
    pyg_q6_k b = {.d = PYG_HALF_NAN};
    if (pyg_all_finite(x, PYG_K_ELEMENTS)) {
        uint8_t quants[PYG_K_ELEMENTS];
        fit6(x, &b, quants);
        for (int i = 0; i < PYG_K_ELEMENTS; i++) {
            const int h = i / 128, k = i / 32 % 4;
            b.low[64 * h + 32 * (k % 2) + i % 32] |= (uint8_t)((quants[i] & 15) << 4 * (k / 2));
            b.high[32 * h + i % 32] |= (uint8_t)(quants[i] >> 4 << 2 * k);
        }
    }
    memcpy(block, &b, sizeof b);
}
