#include "ops/attn_tile.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "ops/ints.h"
#include "ops/rows.h"

#define TILE PYG_ATTN_TILE
#define PANEL 16
#define SUM_CELLS 16
/* Up to this many rows, dots on K as it lies beat decoding it for gemm_tile: by 20 % at 3 rows, by
 * nothing at 4 to 5 with f8_e4m3 (one thread, AVX2, 4096 cells, heads of 64). */
#define DOT_ROWS 4

/* ---- work space ---------------------------------------------------------------------------- */

typedef struct cursor {
    float *base;
    size_t used;
    bool overflow;
} cursor;

/* a * b floats, rounded up to a cache line. */
static float *take(cursor *c, int64_t a, int64_t b) {
    float *p = c->base == NULL ? NULL : c->base + c->used;
    size_t n;
    c->overflow |= __builtin_mul_overflow((size_t)a, (size_t)b, &n);
    c->overflow |= __builtin_add_overflow(n, (size_t)15, &n);
    c->overflow |= __builtin_add_overflow(c->used, n & ~(size_t)15, &c->used);
    return p;
}

size_t pyg_attn_layout(pyg_attn_block *b, float *at) {
    cursor c = {at, 0, false};
    b->q = take(&c, b->rows, b->d);
    b->s = take(&c, b->rows, TILE);
    b->shrink = take(&c, b->rows, 1);
    b->mask = take(&c, b->tokens, TILE);
    b->k_rows = take(&c, PANEL, b->d);
    b->panel = take(&c, PANEL, b->d);
    b->v = take(&c, TILE, b->ldv);
    b->pv = take(&c, b->rows, PANEL);
    b->clean = take(&c, TILE, b->ldv);
    return c.overflow ? SIZE_MAX : c.used;
}

/* ---- the mask of a tile -------------------------------------------------------------------- */

typedef struct tile_mask {
    const float *row[PYG_ATTN_TOKENS]; /* (n) of each token, NULL without a mask */
    int64_t n;                         /* cells up to the last one that a token sees */
    bool holes;                        /* among those, some token may not see some cell */
} tile_mask;

static void look_at_mask(const pyg_attn_block *b, const pyg_attn_place *at, int64_t c0, int64_t n,
                         tile_mask *m) {
    m->n = 0;
    m->holes = false;
    for (int64_t t = 0; t < b->tokens; t++) {
        const int64_t i[3] = {at->t0 + t, 0, 0};
        m->row[t] = pyg_span_in(at->mask, i, c0, n, b->mask + t * TILE);
        for (int64_t c = n; c > m->n; c--)
            if (m->row[t][c - 1] != -INFINITY) m->n = c;
    }
    /* a mask that is not finite somewhere may hide a cell there: enough to be careful with V */
    for (int64_t t = 0; t < b->tokens && !m->holes; t++)
        m->holes = !pyg_k->all_finite(m->n, m->row[t]);
}

/* ---- scores, weights, values --------------------------------------------------------------- */

static void scores(const pyg_attn_block *b, const pyg_attn_place *at, int64_t c0, int64_t n) {
    const pyg_tensor *k = at->k;
    if (b->rows <= DOT_ROWS) {
        const pyg_mv_fn mv = pyg_mv(k->dtype);
        for (int64_t r = 0; r < b->rows; r++)
            mv(b->d, n, pyg_row(k, c0, at->head, at->batch), k->nb[1], b->q + r * b->d,
               b->s + r * TILE);
        return;
    }
    const pyg_to_f32_fn to_f32 = pyg_to_f32(k->dtype);
    for (int64_t c = 0; c < n; c += PANEL) {
        const int64_t cols = pyg_min64(PANEL, n - c);
        for (int64_t i = 0; i < cols; i++)
            to_f32(pyg_row(k, c0 + c + i, at->head, at->batch), b->k_rows + i * b->d, b->d);
        pyg_k->pack_panel16(b->k_rows, b->d, cols, b->d, b->panel);
        pyg_k->gemm_tile(b->d, b->panel, PANEL, b->q, b->d, b->rows, b->s + c, TILE, cols, 0);
    }
}

static void weights(const pyg_attn_block *b, const tile_mask *m) {
    for (int64_t r = 0; r < b->rows; r++)
        b->shrink[r] = pyg_k->attn_softmax(m->n, b->s + r * TILE, b->scale, m->row[r % b->tokens],
                                           &b->max[r], &b->sum[r]);
}

/* o = o * shrink + s . v for n_rows rows from `first` on. Sums of 16 cells are added up, and their
 * sum to o in double: one run over all cells would be several ulp off where V is constant. */
static void add_values(const pyg_attn_block *b, int64_t first, int64_t n_rows, int64_t n,
                       const float *v) {
    for (int64_t j = 0; j < b->dv; j += PANEL) {
        const int64_t cols = pyg_min64(PANEL, b->dv - j);
        for (int64_t c = 0; c < n; c += SUM_CELLS)
            pyg_k->gemm_tile(pyg_min64(SUM_CELLS, n - c), v + c * b->ldv + j, b->ldv,
                             b->s + first * TILE + c, TILE, n_rows, b->pv, PANEL, cols, c > 0);
        for (int64_t r = 0; r < n_rows; r++)
            pyg_k->decay_add(cols, b->shrink[first + r], b->pv + r * PANEL,
                             b->o + (first + r) * b->dv + j);
    }
}

/* A weight of 0 does not silence a NaN or inf in V: each row gets a copy of V whose hidden cells
 * are 0, which gives the bits of a cache that held zeros there. */
static void add_unclean_values(const pyg_attn_block *b, const tile_mask *m) {
    for (int64_t r = 0; r < b->rows; r++) {
        const float *mask = m->row[r % b->tokens];
        memcpy(b->clean, b->v, (size_t)(m->n * b->ldv) * sizeof *b->v);
        for (int64_t c = 0; c < m->n; c++)
            if (mask[c] == -INFINITY)
                memset(b->clean + c * b->ldv, 0, (size_t)b->ldv * sizeof *b->v);
        add_values(b, r, 1, m->n, b->clean);
    }
}

void pyg_attn_tile(const pyg_attn_block *b, const pyg_attn_place *at, int64_t c0, int64_t n) {
    tile_mask m;
    m.n = n;
    m.holes = false;
    if (at->mask != NULL)
        look_at_mask(b, at, c0, n, &m);
    else
        for (int64_t t = 0; t < b->tokens; t++) m.row[t] = NULL;
    if (m.n == 0) return;
    scores(b, at, c0, m.n);
    weights(b, &m);
    const pyg_to_f32_fn to_f32 = pyg_to_f32(at->v->dtype);
    for (int64_t c = 0; c < m.n; c++) {
        float *to = b->v + c * b->ldv;
        to_f32(pyg_row(at->v, c0 + c, at->head, at->batch), to, b->dv);
        for (int64_t j = b->dv; j < b->ldv; j++) to[j] = 0.0f;
    }
    if (m.holes && !pyg_k->all_finite(m.n * b->ldv, b->v))
        add_unclean_values(b, &m);
    else
        add_values(b, 0, b->rows, m.n, b->v);
}
