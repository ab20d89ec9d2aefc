/* to_f32_X and from_f32_X of every format. */
#ifndef PYG_KERNELS_BODY_CONVERT_H
#define PYG_KERNELS_BODY_CONVERT_H

#include "kernels/body/common.h"

V_INLINE void decode(v_load_fn load, int bytes, const void *src, float *dst, int64_t n) {
    const char *p = src;
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_store(dst + i, load(p + i * bytes));
    if (i < n) {
        const int rest = (int)(n - i);
        v_store_n(dst + i, load_tail(load, p + i * bytes, rest * bytes), rest);
    }
}

V_INLINE void encode(v_store_fn store, int bytes, const float *src, void *dst, int64_t n) {
    char *p = dst;
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) store(p + i * bytes, v_load(src + i));
    if (i < n) {
        const int rest = (int)(n - i);
        store_tail(store, p + i * bytes, v_load_n(src + i, rest), rest * bytes);
    }
}

/* Moves bits, so that a signalling NaN stays what it is. In place when source and target are one.
 */
V_INLINE void copy_f32(const float *src, float *dst, int64_t n) {
    int64_t i = 0;
    for (; i + V_WIDTH <= n; i += V_WIDTH) v_copy(src + i, dst + i);
    for (; i < n; i++) memcpy(dst + i, src + i, sizeof *dst);
}

V_INLINE void decode_blocks(v_block_fn load, int bytes, int is_scaled, const void *src, float *dst,
                            int64_t n) {
    const char *block = src;
    V_TWICE
    for (int64_t i = 0; i < n; i += PYG_BLOCK_ELEMENTS, block += bytes) {
        v_f32 q[V_BLOCK];
        const v_f32 scale = load(block, q);
        V_UNROLL
        for (int j = 0; j < V_BLOCK; j++)
            v_store(dst + i + j * V_WIDTH, is_scaled ? v_mul(scale, q[j]) : q[j]);
    }
}

V_INLINE void encode_blocks(v_encode_fn store, int bytes, const float *src, void *dst, int64_t n) {
    char *block = dst;
    for (int64_t i = 0; i < n; i += PYG_BLOCK_ELEMENTS, block += bytes) store(src + i, block);
}

static void K(to_f32_f32)(const void *src, float *dst, int64_t n) { copy_f32(src, dst, n); }
static void K(to_f32_f16)(const void *src, float *dst, int64_t n) {
    decode(v_load_f16, 2, src, dst, n);
}
static void K(to_f32_bf16)(const void *src, float *dst, int64_t n) {
    decode(v_load_bf16, 2, src, dst, n);
}
static void K(to_f32_f8_e4m3)(const void *src, float *dst, int64_t n) {
    decode(v_load_f8_e4m3, 1, src, dst, n);
}
static void K(to_f32_q8_0)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_q8_0, sizeof(pyg_q8_0), 1, src, dst, n);
}
static void K(to_f32_q4_0)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_q4_0, sizeof(pyg_q4_0), 1, src, dst, n);
}
static void K(to_f32_q4_1)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_q4_1, sizeof(pyg_q4_1), 0, src, dst, n);
}
static void K(to_f32_q5_0)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_q5_0, sizeof(pyg_q5_0), 1, src, dst, n);
}
static void K(to_f32_q5_1)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_q5_1, sizeof(pyg_q5_1), 0, src, dst, n);
}
static void K(to_f32_iq4_nl)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_iq4_nl, sizeof(pyg_iq4_nl), 1, src, dst, n);
}
static void K(to_f32_mxfp4)(const void *src, float *dst, int64_t n) {
    decode_blocks(v_block_mxfp4, sizeof(pyg_mxfp4), 0, src, dst, n);
}

static void K(from_f32_f32)(const float *src, void *dst, int64_t n) { copy_f32(src, dst, n); }
static void K(from_f32_f16)(const float *src, void *dst, int64_t n) {
    encode(v_store_f16, 2, src, dst, n);
}
static void K(from_f32_bf16)(const float *src, void *dst, int64_t n) {
    encode(v_store_bf16, 2, src, dst, n);
}
static void K(from_f32_f8_e4m3)(const float *src, void *dst, int64_t n) {
    encode(v_store_f8_e4m3, 1, src, dst, n);
}
static void K(from_f32_q8_0)(const float *src, void *dst, int64_t n) {
    encode_blocks(v_encode_q8_0, sizeof(pyg_q8_0), src, dst, n);
}
static void K(from_f32_q4_0)(const float *src, void *dst, int64_t n) {
    encode_blocks(v_encode_q4_0, sizeof(pyg_q4_0), src, dst, n);
}
static void K(from_f32_q4_1)(const float *src, void *dst, int64_t n) {
    encode_blocks(v_encode_q4_1, sizeof(pyg_q4_1), src, dst, n);
}
static void K(from_f32_q5_0)(const float *src, void *dst, int64_t n) {
    encode_blocks(v_encode_q5_0, sizeof(pyg_q5_0), src, dst, n);
}
static void K(from_f32_q5_1)(const float *src, void *dst, int64_t n) {
    encode_blocks(v_encode_q5_1, sizeof(pyg_q5_1), src, dst, n);
}

#endif
