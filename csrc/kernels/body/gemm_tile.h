/* pack_panel16 and gemm_tile: the register tile of matrix products.
 *
 * Six rows of x by a panel of 16 columns: 12 accumulators, two vectors of the panel and a broadcast
 * fill the 16 registers of AVX2. Row counts are constants of each variant, because accumulators
 * under a count known only at run time are kept in memory. */
#ifndef PYG_KERNELS_BODY_GEMM_TILE_H
#define PYG_KERNELS_BODY_GEMM_TILE_H

#include "kernels/body/common.h"

enum { TILE_COLUMNS = 16, TILE_ROWS = 6, TILE_VECTORS = TILE_COLUMNS / V_WIDTH };

static void K(pack_panel16)(const float *rows, int64_t ld, int64_t n_rows, int64_t k,
                            float *panel) {
    const float *row[TILE_COLUMNS] = {0};
    for (int64_t r = 0; r < n_rows; r++) row[r] = rows + r * ld;
    int64_t i = 0;
    for (; i + V_WIDTH <= k; i += V_WIDTH) v_transpose16(row, i, V_WIDTH, panel + i * TILE_COLUMNS);
    if (i < k) v_transpose16(row, i, (int)(k - i), panel + i * TILE_COLUMNS);
}

/* Columns first .. first + V_WIDTH of one row, of which those below n_cols exist. */
V_INLINE void tile_store(v_f32 acc, float *y, int first, int64_t n_cols, int accumulate) {
    const int64_t left = n_cols - first;
    if (left >= V_WIDTH) {
        v_store(y + first, accumulate ? v_add(v_load(y + first), acc) : acc);
    } else if (left > 0) {
        const int n = (int)left;
        v_store_n(y + first, accumulate ? v_add(v_load_n(y + first, n), acc) : acc, n);
    }
}

V_INLINE void tile(int m, int64_t k, const float *panel, int64_t ldp, const float *x, int64_t ldx,
                   float *y, int64_t ldy, int64_t n_cols, int accumulate) {
    v_f32 acc[TILE_ROWS][TILE_VECTORS];
    V_UNROLL
    for (int t = 0; t < m; t++) {
        V_UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) acc[t][v] = v_set1(0.0f);
    }
    for (int64_t i = 0; i < k; i++, panel += ldp) {
        v_f32 p[TILE_VECTORS];
        V_UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) p[v] = v_load(panel + v * V_WIDTH);
        V_UNROLL
        for (int t = 0; t < m; t++) {
            const v_f32 xt = v_set1(x[t * ldx + i]);
            V_UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) acc[t][v] = v_fma(xt, p[v], acc[t][v]);
        }
    }
    V_UNROLL
    for (int t = 0; t < m; t++) {
        V_UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            tile_store(acc[t][v], y + t * ldy, v * V_WIDTH, n_cols, accumulate);
    }
}

static void K(gemm_tile)(int64_t k, const float *panel, int64_t ldp, const float *x, int64_t ldx,
                         int64_t m, float *y, int64_t ldy, int64_t n_cols, int accumulate) {
    while (m > 0) {
        /* 7 to 11 rows are shared out evenly: a tile of one row waits for its own additions */
        const int64_t rows = m >= 2 * TILE_ROWS || m == TILE_ROWS ? TILE_ROWS
                             : m > TILE_ROWS                      ? (m + 1) / 2
                                                                  : m;
        switch (rows) {
            case 1: tile(1, k, panel, ldp, x, ldx, y, ldy, n_cols, accumulate); break;
            case 2: tile(2, k, panel, ldp, x, ldx, y, ldy, n_cols, accumulate); break;
            case 3: tile(3, k, panel, ldp, x, ldx, y, ldy, n_cols, accumulate); break;
            case 4: tile(4, k, panel, ldp, x, ldx, y, ldy, n_cols, accumulate); break;
            case 5: tile(5, k, panel, ldp, x, ldx, y, ldy, n_cols, accumulate); break;
            default: tile(6, k, panel, ldp, x, ldx, y, ldy, n_cols, accumulate); break;
        }
        x += rows * ldx;
        y += rows * ldy;
        m -= rows;
    }
}

#endif
