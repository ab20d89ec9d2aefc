/* to_f32, from_f32, dot and mv of the formats whose blocks hold several groups of 32 elements (K
 * formats, iq4_xs, nvfp4), and of those encoded by the scalar code of formats/ in every set.
 *
 * A block is made ready once (its scales), then each group gives its 32 values in vectors; values
 * are multiplied by x as they are, since d * sum(q x) - m * sum(x) would lose what cancels between
 * the sums. An mv is one dot a row: x stays in the cache, and a block keeps all registers busy. */
#ifndef PYG_KERNELS_BODY_SUPERBLOCKS_H
#define PYG_KERNELS_BODY_SUPERBLOCKS_H

#include "kernels/body/common.h"

enum { SUMS = 4 };

V_INLINE void decode_super(v_super_fn ready, v_group_fn group, int elements, int bytes,
                           const void *src, float *dst, int64_t n) {
    const char *block = src;
    for (int64_t i = 0; i < n; i += elements, block += bytes) {
        v_super s;
        ready(block, &s);
        V_UNROLL
        for (int g = 0; g < elements / 32; g++) {
            v_f32 q[V_BLOCK];
            group(block, &s, g, q);
            V_UNROLL
            for (int j = 0; j < V_BLOCK; j++) v_store(dst + i + 32 * g + j * V_WIDTH, q[j]);
        }
    }
}

V_INLINE float dot_super(v_super_fn ready, v_group_fn group, int elements, int bytes, int64_t n,
                         const char *block, const float *x) {
    v_f32 sum[SUMS];
    V_UNROLL
    for (int j = 0; j < SUMS; j++) sum[j] = v_set1(0.0f);
    for (int64_t i = 0; i < n; i += elements, block += bytes, x += elements) {
        v_super s;
        ready(block, &s);
        V_UNROLL
        for (int g = 0; g < elements / 32; g++) {
            v_f32 q[V_BLOCK];
            group(block, &s, g, q);
            V_UNROLL
            for (int j = 0; j < V_BLOCK; j++)
                sum[j % SUMS] = v_fma(q[j], v_load(x + 32 * g + j * V_WIDTH), sum[j % SUMS]);
        }
    }
    return v_hsum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

static void K(to_f32_q2_k)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_q2_k, v_group_q2_k, PYG_K_ELEMENTS, sizeof(pyg_q2_k), src, dst, n);
}
static void K(to_f32_q3_k)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_q3_k, v_group_q3_k, PYG_K_ELEMENTS, sizeof(pyg_q3_k), src, dst, n);
}
static void K(to_f32_q4_k)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_q4_k, v_group_q4_k, PYG_K_ELEMENTS, sizeof(pyg_q4_k), src, dst, n);
}
static void K(to_f32_q5_k)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_q5_k, v_group_q5_k, PYG_K_ELEMENTS, sizeof(pyg_q5_k), src, dst, n);
}
static void K(to_f32_q6_k)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_q6_k, v_group_q6_k, PYG_K_ELEMENTS, sizeof(pyg_q6_k), src, dst, n);
}
static void K(to_f32_iq4_xs)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_iq4_xs, v_group_iq4_xs, PYG_K_ELEMENTS, sizeof(pyg_iq4_xs), src, dst, n);
}
static void K(to_f32_nvfp4)(const void *src, float *dst, int64_t n) {
    decode_super(v_super_nvfp4, v_group_nvfp4, PYG_NVFP4_ELEMENTS, sizeof(pyg_nvfp4), src, dst, n);
}

static float K(dot_q2_k)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_q2_k, v_group_q2_k, PYG_K_ELEMENTS, sizeof(pyg_q2_k), n, w, x);
}
static float K(dot_q3_k)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_q3_k, v_group_q3_k, PYG_K_ELEMENTS, sizeof(pyg_q3_k), n, w, x);
}
static float K(dot_q4_k)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_q4_k, v_group_q4_k, PYG_K_ELEMENTS, sizeof(pyg_q4_k), n, w, x);
}
static float K(dot_q5_k)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_q5_k, v_group_q5_k, PYG_K_ELEMENTS, sizeof(pyg_q5_k), n, w, x);
}
static float K(dot_q6_k)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_q6_k, v_group_q6_k, PYG_K_ELEMENTS, sizeof(pyg_q6_k), n, w, x);
}
static float K(dot_iq4_xs)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_iq4_xs, v_group_iq4_xs, PYG_K_ELEMENTS, sizeof(pyg_iq4_xs), n, w, x);
}
static float K(dot_nvfp4)(int64_t n, const void *w, const float *x) {
    return dot_super(v_super_nvfp4, v_group_nvfp4, PYG_NVFP4_ELEMENTS, sizeof(pyg_nvfp4), n, w, x);
}

static void K(mv_q2_k)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_q2_k)(n, (const char *)w + (size_t)r * w_stride, x);
}
static void K(mv_q3_k)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_q3_k)(n, (const char *)w + (size_t)r * w_stride, x);
}
static void K(mv_q4_k)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_q4_k)(n, (const char *)w + (size_t)r * w_stride, x);
}
static void K(mv_q5_k)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_q5_k)(n, (const char *)w + (size_t)r * w_stride, x);
}
static void K(mv_q6_k)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_q6_k)(n, (const char *)w + (size_t)r * w_stride, x);
}
static void K(mv_iq4_xs)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                         float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_iq4_xs)(n, (const char *)w + (size_t)r * w_stride, x);
}
static void K(mv_nvfp4)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                        float *y) {
    for (int64_t r = 0; r < rows; r++)
        y[r] = K(dot_nvfp4)(n, (const char *)w + (size_t)r * w_stride, x);
}

typedef void (*scalar_encode_fn)(const float *x, void *block);

V_INLINE void encode_scalar(scalar_encode_fn one, int elements, int bytes, const float *src,
                            void *dst, int64_t n) {
    char *block = dst;
    for (int64_t i = 0; i < n; i += elements, block += bytes) one(src + i, block);
}

static void K(from_f32_q4_k)(const float *src, void *dst, int64_t n) {
    encode_scalar(pyg_q4_k_encode, PYG_K_ELEMENTS, sizeof(pyg_q4_k), src, dst, n);
}
static void K(from_f32_q5_k)(const float *src, void *dst, int64_t n) {
    encode_scalar(pyg_q5_k_encode, PYG_K_ELEMENTS, sizeof(pyg_q5_k), src, dst, n);
}
static void K(from_f32_q6_k)(const float *src, void *dst, int64_t n) {
    encode_scalar(pyg_q6_k_encode, PYG_K_ELEMENTS, sizeof(pyg_q6_k), src, dst, n);
}
static void K(from_f32_iq4_nl)(const float *src, void *dst, int64_t n) {
    encode_scalar(pyg_iq4_nl_encode, PYG_BLOCK_ELEMENTS, sizeof(pyg_iq4_nl), src, dst, n);
}
static void K(from_f32_mxfp4)(const float *src, void *dst, int64_t n) {
    encode_scalar(pyg_mxfp4_encode, PYG_BLOCK_ELEMENTS, sizeof(pyg_mxfp4), src, dst, n);
}

#endif
