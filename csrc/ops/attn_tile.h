/* Flash attention, one tile: up to 64 cells of one kv head against a block of query rows.
 *
 * A block holds the rows of all query heads that share a kv head, for a few neighbouring tokens:
 * row h * tokens + t. attention.c owns the loop over tiles; this file is what happens inside one.
 */
#ifndef PYG_OPS_ATTN_TILE_H
#define PYG_OPS_ATTN_TILE_H

#include "ops/op.h"

#define PYG_ATTN_TILE 64
#define PYG_ATTN_TOKENS 96 /* most tokens in a block */

/* Where a block looks: token t of the block is token t0 + t of the mask. */
typedef struct pyg_attn_place {
    const pyg_tensor *k, *v, *mask; /* mask may be NULL */
    int64_t head;                   /* kv head */
    int64_t batch;
    int64_t t0;
} pyg_attn_place;

typedef struct pyg_attn_block {
    int64_t d, dv;  /* head sizes of k and v */
    int64_t ldv;    /* floats of a decoded V row: dv rounded up to 16 */
    int64_t rows;   /* heads * tokens */
    int64_t tokens; /* 1..PYG_ATTN_TOKENS */
    float scale;
    float *q;    /* (rows, d) in */
    double *o;   /* (rows, dv) running sum of exp(s - max) * v, start at 0 */
    float *max;  /* (rows) running maximum, start at -inf */
    double *sum; /* (rows) running sum of exp(s - max), start at 0 */
    /* work space */
    float *shrink; /* (rows) factor on o that the new maximum asks for */
    float *s;      /* (rows, 64) scores, then weights */
    float *mask;   /* (tokens, 64) */
    float *k_rows; /* (16, d) */
    float *panel;  /* (d, 16) */
    float *v;      /* (64, ldv) */
    float *pv;     /* (rows, 16) what a tile adds to 16 columns of o */
    float *clean;  /* (64, ldv) */
} pyg_attn_block;

/* Lays q and the work space of `b` (its sizes are set; rows and tokens at their largest) out at
 * `at` and returns the floats they take; SIZE_MAX on overflow. `at` NULL: only counts. */
size_t pyg_attn_layout(pyg_attn_block *b, float *at);

/* Takes cells c0 .. c0+n-1 (n in 1..64) into o, max and sum. A cell masked for a row contributes
 * nothing to it whatever its bytes; cells behind the last one that any row sees are not read, nor
 * is anything of K and V when there is none. */
void pyg_attn_tile(const pyg_attn_block *b, const pyg_attn_place *at, int64_t c0, int64_t n);

#endif
