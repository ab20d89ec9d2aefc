/* Pieces: how the ops that work element by element cut a tensor.
 *
 * A piece is at most PYG_SPAN elements of one row. pyg_collapse first joins axes, so that dense
 * tensors become one long row and rows are short only where the memory really is in short runs. */
#ifndef PYG_OPS_SPANS_H
#define PYG_OPS_SPANS_H

#include "kernels/kernels.h"
#include "ops/rows.h"

typedef struct pyg_piece {
    int64_t i[3]; /* the row */
    int64_t j0;   /* first element */
    int64_t n;    /* elements, 1..PYG_SPAN */
} pyg_piece;

/* Joins neighbouring axes that all `count` tensors step through alike. t[0] gives the shape; the
 * others have that shape or broadcast to it. */
void pyg_collapse(pyg_tensor *t, int count);

/* Copies a span between tensors: bytes when the dtypes agree, else through F32 with one rounding.
 * Both dtypes are float types, or equal. buf holds n floats. src and dst may overlap when the
 * dtypes agree. */
void pyg_span_copy(const pyg_tensor *src, const int64_t src_i[3], const pyg_tensor *dst,
                   const int64_t dst_i[3], int64_t j0, int64_t n, float *buf);

static inline bool pyg_dense_f32_rows(const pyg_tensor *t) {
    return t->dtype == PYG_DTYPE_f32 && pyg_row_contiguous(t);
}

/* The direct kernel of a slot for t[0..count-1], as pyg_collapse left them: NULL unless all are of
 * one dtype and as dense along a row as t[0], with no row repeated from one element. */
static inline pyg_any_fn pyg_direct_for(size_t slot, const pyg_tensor *t, int count) {
    for (int s = 0; s < count; s++)
        if (t[s].dtype != t[0].dtype || t[s].ne[0] != t[0].ne[0] || !pyg_row_contiguous(&t[s]))
            return NULL;
    return pyg_direct(slot, t[0].dtype);
}

static inline int64_t pyg_spans_a_row(const pyg_tensor *t) {
    return t->ne[0] / PYG_SPAN + (t->ne[0] % PYG_SPAN != 0);
}

static inline int64_t pyg_n_pieces(const pyg_tensor *t) {
    return pyg_spans_a_row(t) * pyg_n_rows(t);
}

/* Tasks for a tensor cut in pieces, at `cost` operations an element. */
static inline int64_t pyg_split_pieces(const pyg_tensor *t, int64_t cost) {
    return pyg_split(pyg_n_pieces(t), cost * (t->ne[0] < PYG_SPAN ? t->ne[0] : PYG_SPAN));
}

static inline void pyg_piece_cut(const pyg_tensor *t, pyg_piece *p) {
    const int64_t left = t->ne[0] - p->j0;
    p->n = left < PYG_SPAN ? left : PYG_SPAN;
}

/* Piece number k, which must be below pyg_n_pieces. */
static inline void pyg_piece_at(const pyg_tensor *t, int64_t k, pyg_piece *p) {
    const int64_t spans = pyg_spans_a_row(t);
    pyg_row_index(t->ne, k / spans, p->i);
    p->j0 = k % spans * PYG_SPAN;
    pyg_piece_cut(t, p);
}

/* The piece after p; past the last one p is not to be used. */
static inline void pyg_piece_next(const pyg_tensor *t, pyg_piece *p) {
    p->j0 += PYG_SPAN;
    if (p->j0 >= t->ne[0]) {
        p->j0 = 0;
        if (++p->i[0] == t->ne[1]) {
            p->i[0] = 0;
            if (++p->i[1] == t->ne[2]) {
                p->i[1] = 0;
                p->i[2]++;
            }
        }
    }
    pyg_piece_cut(t, p);
}

#endif
