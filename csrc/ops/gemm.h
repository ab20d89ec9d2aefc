/* What the matrix products share: packed panels, sweeps over tokens, sizes that do not overflow.
 *
 * A panel is PYG_PANEL rows of w, PYG_PANEL_K columns of them, decoded to F32 and packed for
 * gemm_tile. */
#ifndef PYG_OPS_GEMM_H
#define PYG_OPS_GEMM_H

#include <string.h>

#include "kernels/kernels.h"
#include "ops/ints.h"
#include "ops/rows.h"

enum {
    /* Below this many tokens rows are dotted. The paths cross at 7 tokens for f8_e4m3 and at 16 for
     * f16 (one thread, AVX2, N x K of a 135M model): one threshold serves all. */
    PYG_FEW_TOKENS = 8,
    /* A packed panel of this many columns (16 KB) stays in L1 while the tokens go by. */
    PYG_PANEL = 16,
    PYG_PANEL_K = 256,
    /* Tokens of a task, and of the slice of x that stays in L2 while all panels use it. */
    PYG_TASK_TOKENS = 256,
    PYG_SLICE_TOKENS = 48,
    /* Rows of w in a task of many tokens: enough tasks first, then few passes over x. */
    PYG_TASK_ROWS = 64,
    PYG_TASKS_WANTED = 12,
};

static inline int64_t pyg_clamp64(int64_t a, int64_t lo, int64_t hi) {
    return a < lo ? lo : pyg_min64(a, hi);
}

/* *bytes += a * b floats; true when that overflows. */
static inline bool pyg_add_floats(size_t *bytes, int64_t a, int64_t b) {
    size_t n;
    return __builtin_mul_overflow((size_t)a, (size_t)b, &n) ||
           __builtin_mul_overflow(n, sizeof(float), &n) || __builtin_add_overflow(*bytes, n, bytes);
}

/* Rows of w in a unit of the many-tokens path: a multiple of `step`. */
static inline int64_t pyg_unit_rows(int64_t n, int64_t step) {
    return pyg_round_up(pyg_clamp64(n / PYG_TASKS_WANTED, 1, PYG_TASK_ROWS), step);
}

/* Columns of a panel: K in even parts, multiples of 32 and of the block of w. */
static inline int64_t pyg_panel_columns(int64_t k, int64_t block) {
    const int64_t unit = block > 32 ? block : 32;
    return k == 0 ? 0 : pyg_round_up(pyg_ceil_div(k, pyg_ceil_div(k, PYG_PANEL_K)), unit);
}

/* Rows are runs of floats at a stride of whole floats: what gemm_tile can walk. */
static inline bool pyg_is_f32_rows(const pyg_tensor *t) {
    return t->dtype == PYG_DTYPE_f32 && pyg_row_contiguous(t) && t->nb[1] % sizeof(float) == 0;
}

/* n elements from k0 on of a row, as F32 at `to`. */
static inline void pyg_load_span(const pyg_tensor *t, const int64_t i[3], int64_t k0, int64_t n,
                                 float *to) {
    const float *from = pyg_span_in(t, i, k0, n, to);
    if (from != to && n > 0) memcpy(to, from, (size_t)n * sizeof *to);
}

/* Rows first..last-1 of t, decoded to a dense copy of all of t at `to`. */
static inline void pyg_convert_rows(const pyg_tensor *t, int64_t first, int64_t last, float *to) {
    int64_t i[3];
    for (int64_t r = first; r < last; r++) {
        pyg_row_index(t->ne, r, i);
        pyg_load_span(t, i, 0, t->ne[0], to + r * t->ne[0]);
    }
}

/* t as that copy. */
static inline pyg_tensor pyg_dense_f32(const pyg_tensor *t, char *data) {
    pyg_tensor x = *t;
    x.dtype = PYG_DTYPE_f32;
    x.data = data;
    x.nb[0] = sizeof(float);
    for (int a = 1; a < PYG_MAX_DIMS; a++) x.nb[a] = (size_t)x.ne[a - 1] * x.nb[a - 1];
    return x;
}

/* n rows of w from i[0] on, columns k0 .. k0+kc-1, to a packed panel. */
static inline void pyg_load_panel(const pyg_tensor *w, const int64_t i[3], int64_t n, int64_t k0,
                                  int64_t kc, float *rows, float *panel) {
    for (int64_t r = 0; r < n; r++)
        pyg_load_span(w, (int64_t[3]){i[0] + r, i[1], i[2]}, k0, kc, rows + r * kc);
    pyg_k->pack_panel16(rows, kc, n, kc, panel);
}

/* n columns of panels against m tokens, a slice of x at a time. */
static inline void pyg_sweep(const float *panels, int64_t kc, int64_t n, const float *x,
                             int64_t ldx, int64_t m, float *y, int64_t ldy, int accumulate) {
    for (int64_t t = 0; t < m; t += PYG_SLICE_TOKENS)
        for (int64_t c = 0; c < n; c += PYG_PANEL)
            pyg_k->gemm_tile(kc, panels + c * kc, PYG_PANEL, x + t * ldx, ldx,
                             pyg_min64(PYG_SLICE_TOKENS, m - t), y + t * ldy + c, ldy,
                             pyg_min64(PYG_PANEL, n - c), accumulate);
}

#endif
