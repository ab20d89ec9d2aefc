/* dot_X and mv_X: rows of weights times one vector of F32.
 *
 * An mv takes four rows at a time, so that each part of x is loaded once for them; a dot is one row
 * of the same code, so both add in the same order. F8_E4M3 has its own rows where that is faster
 * (dot_f8_*.h). */
#ifndef PYG_KERNELS_BODY_DOT_H
#define PYG_KERNELS_BODY_DOT_H

#include "kernels/body/common.h"

enum { MV_ROWS = 4 };

/* Asks for the rows after these, as many bytes a step as the step takes: rows follow each other in
 * memory, and the hardware's own prefetch stops at each page. Returns where to go on. */
V_INLINE const char *prefetch_ahead(int n_rows, const char *next, int bytes) {
    if (n_rows > 1) {
        V_UNROLL
        for (int b = 0; b < n_rows * bytes; b += 64) v_prefetch(next + b);
    }
    return next + n_rows * bytes;
}

/* n_rows is a constant at every call: after inlining the accumulators are registers. */
V_INLINE void dot_rows(int n_rows, v_load_fn load, int bytes, int64_t n, const char *w,
                       size_t stride, const float *x, float *y) {
    v_f32 even[MV_ROWS], odd[MV_ROWS];
    V_UNROLL
    for (int r = 0; r < n_rows; r++) even[r] = odd[r] = v_set1(0.0f);
    const char *next = w + (size_t)n_rows * stride;
    int64_t i = 0;
    for (; i + 2 * V_WIDTH <= n; i += 2 * V_WIDTH) {
        const v_f32 x0 = v_load(x + i), x1 = v_load(x + i + V_WIDTH);
        next = prefetch_ahead(n_rows, next, 2 * V_WIDTH * bytes);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const char *p = w + (size_t)r * stride + i * bytes;
            even[r] = v_fma(load(p), x0, even[r]);
            odd[r] = v_fma(load(p + V_WIDTH * bytes), x1, odd[r]);
        }
    }
    if (i + V_WIDTH <= n) {
        const v_f32 x0 = v_load(x + i);
        V_UNROLL
        for (int r = 0; r < n_rows; r++)
            even[r] = v_fma(load(w + (size_t)r * stride + i * bytes), x0, even[r]);
        i += V_WIDTH;
    }
    if (i < n) {
        const int rest = (int)(n - i);
        const v_f32 x1 = v_load_n(x + i, rest);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const char *p = w + (size_t)r * stride + i * bytes;
            odd[r] = v_fma(load_tail(load, p, rest * bytes), x1, odd[r]);
        }
    }
    V_UNROLL
    for (int r = 0; r < n_rows; r++) y[r] = v_hsum(v_add(even[r], odd[r]));
}

V_INLINE void mv_rows(v_load_fn load, int bytes, int64_t n, int64_t rows, const char *w,
                      size_t stride, const float *x, float *y) {
    int64_t r = 0;
    for (; r + MV_ROWS <= rows; r += MV_ROWS)
        dot_rows(MV_ROWS, load, bytes, n, w + (size_t)r * stride, stride, x, y + r);
    for (; r < rows; r++) dot_rows(1, load, bytes, n, w + (size_t)r * stride, stride, x, y + r);
}

/* With a scale, the quants of a block are summed first and the sum is scaled: the products d * q *
 * x are the same numbers, one multiplication a block instead of one an element. */
V_INLINE void dot_block_rows(int n_rows, v_block_fn load, int bytes, int is_scaled, int64_t n,
                             const char *w, size_t stride, const float *x, float *y) {
    v_f32 even[MV_ROWS], odd[MV_ROWS];
    V_UNROLL
    for (int r = 0; r < n_rows; r++) even[r] = odd[r] = v_set1(0.0f);
    const char *next = w + (size_t)n_rows * stride;
    for (int64_t i = 0; i < n; i += PYG_BLOCK_ELEMENTS, w += bytes, x += PYG_BLOCK_ELEMENTS) {
        next = prefetch_ahead(n_rows, next, bytes);
        V_UNROLL
        for (int r = 0; r < n_rows; r++) {
            v_f32 q[V_BLOCK];
            const v_f32 scale = load(w + (size_t)r * stride, q);
            v_f32 sum = is_scaled ? v_mul(q[0], v_load(x)) : v_fma(q[0], v_load(x), even[r]);
            v_f32 other = is_scaled ? sum : odd[r];
            V_UNROLL
            for (int j = 1; j < V_BLOCK; j++) {
                const v_f32 xj = v_load(x + j * V_WIDTH);
                if (is_scaled || j % 2 == 0)
                    sum = v_fma(q[j], xj, sum);
                else
                    other = v_fma(q[j], xj, other);
            }
            even[r] = is_scaled ? v_fma(scale, sum, even[r]) : sum;
            odd[r] = is_scaled ? odd[r] : other;
            if (!is_scaled) V_ROW_END;
        }
    }
    V_UNROLL
    for (int r = 0; r < n_rows; r++) y[r] = v_hsum(v_add(even[r], odd[r]));
}

V_INLINE void mv_block_rows(v_block_fn load, int bytes, int is_scaled, int64_t n, int64_t rows,
                            const char *w, size_t stride, const float *x, float *y) {
    int64_t r = 0;
    for (; r + MV_ROWS <= rows; r += MV_ROWS)
        dot_block_rows(MV_ROWS, load, bytes, is_scaled, n, w + (size_t)r * stride, stride, x,
                       y + r);
    for (; r < rows; r++)
        dot_block_rows(1, load, bytes, is_scaled, n, w + (size_t)r * stride, stride, x, y + r);
}

static float K(dot_f32)(int64_t n, const void *w, const float *x) {
    float y;
    dot_rows(1, v_load_f32, 4, n, w, 0, x, &y);
    return y;
}
static float K(dot_f16)(int64_t n, const void *w, const float *x) {
    float y;
    dot_rows(1, v_load_f16, 2, n, w, 0, x, &y);
    return y;
}
static float K(dot_bf16)(int64_t n, const void *w, const float *x) {
    float y;
    dot_rows(1, v_load_bf16, 2, n, w, 0, x, &y);
    return y;
}
static float K(dot_q8_0)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_q8_0, sizeof(pyg_q8_0), 1, n, w, 0, x, &y);
    return y;
}
static float K(dot_q4_0)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_q4_0, sizeof(pyg_q4_0), 1, n, w, 0, x, &y);
    return y;
}
static float K(dot_q4_1)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_q4_1, sizeof(pyg_q4_1), 0, n, w, 0, x, &y);
    return y;
}
static float K(dot_q5_0)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_q5_0, sizeof(pyg_q5_0), 1, n, w, 0, x, &y);
    return y;
}
static float K(dot_q5_1)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_q5_1, sizeof(pyg_q5_1), 0, n, w, 0, x, &y);
    return y;
}
static float K(dot_iq4_nl)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_iq4_nl, sizeof(pyg_iq4_nl), 1, n, w, 0, x, &y);
    return y;
}
static float K(dot_mxfp4)(int64_t n, const void *w, const float *x) {
    float y;
    dot_block_rows(1, v_block_mxfp4, sizeof(pyg_mxfp4), 0, n, w, 0, x, &y);
    return y;
}

static void K(mv_f32)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                      float *y) {
    mv_rows(v_load_f32, 4, n, rows, w, w_stride, x, y);
}
static void K(mv_f16)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                      float *y) {
    mv_rows(v_load_f16, 2, n, rows, w, w_stride, x, y);
}
static void K(mv_bf16)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    mv_rows(v_load_bf16, 2, n, rows, w, w_stride, x, y);
}
static void K(mv_q8_0)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    mv_block_rows(v_block_q8_0, sizeof(pyg_q8_0), 1, n, rows, w, w_stride, x, y);
}
static void K(mv_q4_0)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    mv_block_rows(v_block_q4_0, sizeof(pyg_q4_0), 1, n, rows, w, w_stride, x, y);
}
static void K(mv_q4_1)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    mv_block_rows(v_block_q4_1, sizeof(pyg_q4_1), 0, n, rows, w, w_stride, x, y);
}
static void K(mv_q5_0)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    mv_block_rows(v_block_q5_0, sizeof(pyg_q5_0), 1, n, rows, w, w_stride, x, y);
}
static void K(mv_q5_1)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                       float *y) {
    mv_block_rows(v_block_q5_1, sizeof(pyg_q5_1), 0, n, rows, w, w_stride, x, y);
}
static void K(mv_iq4_nl)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                         float *y) {
    mv_block_rows(v_block_iq4_nl, sizeof(pyg_iq4_nl), 1, n, rows, w, w_stride, x, y);
}
static void K(mv_mxfp4)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                        float *y) {
    mv_block_rows(v_block_mxfp4, sizeof(pyg_mxfp4), 0, n, rows, w, w_stride, x, y);
}

#endif
