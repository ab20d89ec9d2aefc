/* Calls every kernel slot of every supported set once, on the sizes of a small model: rows of 576
 * (512 where blocks hold 256 elements), tiles of 64 scores, heads of 64. Made and run under callgrind
 * by callgrind_kernels.py; takes no arguments. */
#include <string.h>

#include "kernels/kernels.h"

enum { K = 576, SUPER_K = 512, ROWS = 64, TILE = 64, PAIRS = 32 };

static float a[ROWS * K], b[ROWS * K], y[ROWS * K], panel[K * 16];
static char codes[K * 4];

/* One row stands for all: the stride of mv is 0. */
#define READS(name, n)                                                                             \
    do {                                                                                           \
        k->to_f32_##name(codes, y, n);                                                             \
        y[0] = k->dot_##name(n, codes, b);                                                         \
        k->mv_##name(n, ROWS, codes, 0, b, y);                                                     \
    } while (0)
#define DTYPE(name, n)                                                                             \
    do {                                                                                           \
        k->from_f32_##name(a, codes, n);                                                           \
        READS(name, n);                                                                            \
    } while (0)

static void call_dtypes(const pyg_kernel_table *k) {
    DTYPE(f32, K);
    DTYPE(f16, K);
    DTYPE(bf16, K);
    DTYPE(f8_e4m3, K);
    DTYPE(q8_0, K);
    DTYPE(q4_0, K);
    DTYPE(q4_1, K);
    DTYPE(q5_0, K);
    DTYPE(q5_1, K);
    DTYPE(iq4_nl, K);
    DTYPE(mxfp4, K);
    DTYPE(q4_k, SUPER_K);
    DTYPE(q5_k, SUPER_K);
    DTYPE(q6_k, SUPER_K);
    memset(codes, 0x2B, sizeof codes); /* formats that are only read: any bytes do */
    READS(q2_k, SUPER_K);
    READS(q3_k, SUPER_K);
    READS(iq4_xs, SUPER_K);
    READS(nvfp4, K);
}

static void call_unary(const pyg_kernel_table *k) {
    k->sqr(K, a, y);
    k->sqrt(K, a, y);
    k->neg(K, a, y);
    k->abs(K, a, y);
    k->relu(K, a, y);
    k->step(K, a, y);
    k->exp(K, a, y);
    k->log(K, a, y);
    k->sin(K, a, y);
    k->cos(K, a, y);
    k->tanh(K, a, y);
    k->sigmoid(K, a, y);
    k->softplus(K, a, y);
    k->silu(K, a, y);
    k->gelu(K, a, y);
    k->gelu_erf(K, a, y);
    k->gelu_quick(K, a, y);
    k->clamp(K, a, -0.5f, 0.5f, y);
    k->leaky_relu(K, a, 0.1f, y);
    k->swiglu(K, a, b, y);
    k->geglu(K, a, b, y);
    k->geglu_erf(K, a, b, y);
    k->geglu_quick(K, a, b, y);
    k->reglu(K, a, b, y);
}

/* F16 codes in the bytes of F32 operands: the instructions do not depend on what they hold. */
static void call_direct(const pyg_kernel_table *k) {
    k->add_f16(K, a, b, y);
    k->sub_f16(K, a, b, y);
    k->mul_f16(K, a, b, y);
    k->div_f16(K, a, b, y);
    k->scale_f16(K, a, 0.5f, 0.1f, y);
    y[0] = (float)k->sum_sqr_f16(K, a);
}

static void call_all(const pyg_kernel_table *k) {
    float max = 0.0f;
    double sum = 0.0, wide[K] = {0};
    call_dtypes(k);
    k->pack_panel16(a, K, 16, K, panel);
    k->gemm_tile(K, panel, 16, b, K, TILE, y, 16, 16, 0);
    k->add(K, a, b, y);
    k->sub(K, a, b, y);
    k->mul(K, a, b, y);
    k->div(K, a, b, y);
    k->scale(K, a, 0.5f, 0.1f, y);
    k->decay_add(K, 0.5f, a, wide);
    call_direct(k);
    call_unary(k);
    y[0] = (float)k->sum(K, a);
    y[0] = (float)k->sum_sqr(K, a);
    y[0] = (float)k->argmax(K, a);
    k->norm(K, a, 1e-5f, y);
    k->scale_wide(K, a, 0.5, y);
    k->fwht(512, a, 0.5f, y);
    k->soft_max(TILE, a, 0.125f, b, 0.5f, y);
    k->rope_norm(PAIRS, a, b, b + PAIRS, y);
    k->rope_neox(PAIRS, a, b, b + PAIRS, y);
    memcpy(y, a, sizeof y);
    k->attn_softmax(TILE, y, 0.125f, b, &max, &sum);
    y[0] = (float)k->all_finite(K, a);
}

int main(void) {
    uint32_t state = 1;
    for (int i = 0; i < ROWS * K; i++) {
        state = state * 1664525u + 1013904223u;
        a[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
        b[i] = -a[i] * a[i];
    }
    for (int i = 0; pyg_isa_at(i); i++) {
        if (pyg_isa_init(pyg_isa_at(i)) != PYG_OK) return 1;
        call_all(pyg_k);
    }
    return 0;
}
