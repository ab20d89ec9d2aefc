#include "formats/k_quants.h"

#include <string.h>

#include "formats/f16.h"

void pyg_q2_k_decode(const void *block, float *y) {
    pyg_q2_k b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d), dmin = pyg_f16_decode(b.dmin);
    for (int a = 0; a < 16; a++) {
        const float scale = d * (float)(b.scales[a] & 15), min = dmin * (float)(b.scales[a] >> 4);
        const int g = a / 2, shift = 2 * (g % 4);
        const uint8_t *q = b.q + 32 * (g / 4) + 16 * (a % 2);
        for (int i = 0; i < 16; i++) y[16 * a + i] = scale * (float)(q[i] >> shift & 3) - min;
    }
}

void pyg_q3_k_decode(const void *block, float *y) {
    pyg_q3_k b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d);
    for (int a = 0; a < 16; a++) {
        const int low = b.scales[a % 8] >> 4 * (a / 8) & 15;
        const int high = b.scales[8 + a % 4] >> 2 * (a / 4) & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        const int g = a / 2, shift = 2 * (g % 4);
        const uint8_t *q = b.q + 32 * (g / 4) + 16 * (a % 2), *h = b.high + 16 * (a % 2);
        for (int i = 0; i < 16; i++)
            y[16 * a + i] = scale * (float)((q[i] >> shift & 3) + 4 * (h[i] >> g & 1) - 4);
    }
}

/* Scale and offset of group g. */
static void unpack6(const uint8_t *s, int g, float *scale, float *min) {
    if (g < 4) {
        *scale = (float)(s[g] & 63);
        *min = (float)(s[g + 4] & 63);
    } else {
        *scale = (float)((s[g + 4] & 15) | s[g - 4] >> 6 << 4);
        *min = (float)(s[g + 4] >> 4 | s[g] >> 6 << 4);
    }
}

void pyg_q4_k_decode(const void *block, float *y) {
    pyg_q4_k b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d), dmin = pyg_f16_decode(b.dmin);
    for (int g = 0; g < 8; g++) {
        float scale, min;
        unpack6(b.scales, g, &scale, &min);
        scale *= d;
        min *= dmin;
        const uint8_t *q = b.q + 32 * (g / 2);
        for (int i = 0; i < 32; i++)
            y[32 * g + i] = scale * (float)(q[i] >> 4 * (g % 2) & 15) - min;
    }
}

void pyg_q5_k_decode(const void *block, float *y) {
    pyg_q5_k b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d), dmin = pyg_f16_decode(b.dmin);
    for (int g = 0; g < 8; g++) {
        float scale, min;
        unpack6(b.scales, g, &scale, &min);
        scale *= d;
        min *= dmin;
        const uint8_t *q = b.q + 32 * (g / 2);
        for (int i = 0; i < 32; i++) {
            const int quant = (q[i] >> 4 * (g % 2) & 15) | (b.high[i] >> g & 1) << 4;
            y[32 * g + i] = scale * (float)quant - min;
        }
    }
}

void pyg_q6_k_decode(const void *block, float *y) {
    pyg_q6_k b;
    memcpy(&b, block, sizeof b);
    const float d = pyg_f16_decode(b.d);
    for (int a = 0; a < 16; a++) {
        const float scale = d * (float)b.scales[a];
        const int g = a / 2, h = g / 4, k = g % 4;
        const uint8_t *low = b.low + 64 * h + 32 * (k % 2) + 16 * (a % 2);
        const uint8_t *high = b.high + 32 * h + 16 * (a % 2);
        for (int i = 0; i < 16; i++) {
            const int quant = (low[i] >> 4 * (k / 2) & 15) | (high[i] >> 2 * k & 3) << 4;
            y[16 * a + i] = scale * (float)(quant - 32);
        }
    }
}
