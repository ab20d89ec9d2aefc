/* Flash attention with grouped heads: flash_attn_ext (Dao 2022; Ainslie 2023 for the groups).
 *
 * A unit of work is a block of tokens of all query heads that share a kv head, so K and V are read
 * and decoded once for the group. When there are few blocks the cells are cut into chunks too: each
 * leaves (o, max, sum) in shared memory, and a second phase joins them in order. Blocks and chunks
 * follow from T, D and the group alone: neither threads, nor the batch, nor unused room in the
 * cache change a bit of the result. */
#include "ops/ops.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "ops/attn_tile.h"
#include "ops/ints.h"
#include "ops/rows.h"
#include "ops/rules.h"

/* Query floats of a block: with its scores and a tile of K and V it stays in L2. */
#define BLOCK_FLOATS 6144
#define BLOCK_ROWS_MAX PYG_ATTN_TOKENS
#define BLOCK_ROWS_MIN 16
/* Cells of a chunk: for a few tokens, where the time goes into reading the cache; for some; else no
 * cut. */
#define FEW_TOKENS 8
#define FEW_CELLS 256
#define SOME_BLOCKS 16
#define SOME_CELLS 1024

/* ---- infer --------------------------------------------------------------------------------- */

static pyg_status check_types(const pyg_infer *in) {
    for (int i = 0; i < 3; i++) PYG_TRY(pyg_need_float(in, i));
    const pyg_operand *mask = in->src[3];
    if (mask != NULL && mask->t.dtype != PYG_DTYPE_f32 && mask->t.dtype != PYG_DTYPE_f16)
        return pyg_op_fail(in, PYG_STATUS_dtype, "the mask must be f32 or f16");
    return PYG_OK;
}

static pyg_status check_shapes(const pyg_infer *in) {
    const pyg_tensor *q = &in->src[0]->t, *k = &in->src[1]->t, *v = &in->src[2]->t;
    if (q->ndim < 3 || k->ndim != q->ndim || v->ndim != q->ndim)
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "q must be (B, H, T, D), k (B, G, C, D) and v (B, G, C, Dv), all with "
                           "or all without B");
    if (q->ne[3] != k->ne[3] || q->ne[3] != v->ne[3])
        return pyg_op_fail(in, PYG_STATUS_shape, "batch sizes differ");
    if (k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2])
        return pyg_op_fail(in, PYG_STATUS_shape, "k and v differ in heads or cells");
    if (q->ne[0] != k->ne[0])
        return pyg_op_fail(in, PYG_STATUS_shape, "head sizes of q and k differ");
    if (q->ne[0] == 0 || v->ne[0] == 0)
        return pyg_op_fail(in, PYG_STATUS_shape, "head sizes must be at least 1");
    if (k->ne[2] == 0 || q->ne[2] % k->ne[2] != 0)
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "the %lld query heads are not a multiple of the %lld kv heads",
                           (long long)q->ne[2], (long long)k->ne[2]);
    if (!pyg_row_contiguous(k) || !pyg_row_contiguous(v))
        return pyg_op_fail(in, PYG_STATUS_shape, "rows of k and v must be contiguous");
    const pyg_operand *mask = in->src[3];
    if (mask != NULL &&
        (mask->t.ndim != 2 || mask->t.ne[0] != k->ne[1] || mask->t.ne[1] != q->ne[1]))
        return pyg_op_fail(in, PYG_STATUS_shape, "the mask must be (T, C) = (%lld, %lld)",
                           (long long)q->ne[1], (long long)k->ne[1]);
    return PYG_OK;
}

pyg_status pyg_infer_flash_attn_ext(pyg_infer *in) {
    PYG_TRY(check_types(in));
    PYG_TRY(check_shapes(in));
    const pyg_tensor *q = &in->src[0]->t, *v = &in->src[2]->t;
    const pyg_attn_params *params = in->params;
    pyg_dtype dtype = PYG_DTYPE_f32;
    if (params->dtype >= 0) PYG_TRY(pyg_result_dtype(in, params->dtype, 0, 2, &dtype));
    if (v->ne[0] % pyg_dtype_row(dtype)->block != 0)
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "a result in %s needs a head size that is a multiple of %d",
                           pyg_dtype_row(dtype)->name, pyg_dtype_row(dtype)->block);
    const int64_t ne[PYG_MAX_DIMS] = {v->ne[0], q->ne[2], q->ne[1], q->ne[3]};
    return pyg_infer_result(in, dtype, q->ndim, ne);
}

/* ---- plan ---------------------------------------------------------------------------------- */

/* How a node is cut up: the same for plan and for every task. */
typedef struct layout {
    int64_t group;    /* query heads of a kv head */
    int64_t tokens;   /* of a block */
    int64_t n_blocks; /* along T */
    int64_t cells;    /* of a chunk */
    int64_t n_chunks;
    int64_t n_units;
    int64_t part; /* floats of a unit's o, max and sum */
} layout;

static layout layout_of(const pyg_node_io *io) {
    const pyg_tensor *q = io->src[0], *k = io->src[1], *v = io->src[2];
    const int64_t n_tok = q->ne[1], n_cells = k->ne[1];
    layout l = {.group = q->ne[2] / k->ne[2]};
    const int64_t rows =
        pyg_max64(BLOCK_ROWS_MIN, pyg_min64(BLOCK_ROWS_MAX, BLOCK_FLOATS / q->ne[0]));
    l.tokens = pyg_max64(1, pyg_min64(n_tok, rows / pyg_max64(1, l.group)));
    l.n_blocks = pyg_ceil_div(n_tok, l.tokens);
    l.cells = n_tok <= FEW_TOKENS ? FEW_CELLS : SOME_CELLS;
    if (l.n_blocks >= SOME_BLOCKS) l.cells = pyg_max64(1, n_cells);
    l.n_chunks = pyg_max64(1, pyg_ceil_div(n_cells, l.cells));
    l.n_units = l.group == 0 ? 0 : q->ne[3] * k->ne[2] * l.n_blocks * l.n_chunks;
    l.part = l.group * l.tokens * (2 * v->ne[0] + 3); /* o and the sums are doubles */
    l.part += l.part % 2;
    return l;
}

static pyg_attn_block block_of(const pyg_node_io *io, const layout *l, int64_t tokens) {
    const pyg_attn_params *params = io->params;
    const int64_t dv = io->src[2]->ne[0];
    return (pyg_attn_block){.d = io->src[0]->ne[0],
                            .dv = dv,
                            .ldv = pyg_ceil_div(dv, 16) * 16,
                            .rows = l->group * tokens,
                            .tokens = tokens,
                            .scale = params->scale};
}

/* Scratch: work space of the tiles, a unit's part (unused when that is in shared memory), then
 * values of one result row. */
pyg_status pyg_plan_flash_attn_ext(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *q = io->src[0], *v = io->src[2];
    const layout l = layout_of(io);
    pyg_attn_block b = block_of(io, &l, l.tokens);
    const int64_t cells = pyg_min64(l.cells, io->src[1]->ne[1]);
    plan->n_tasks[0] =
        pyg_split(l.n_units, pyg_saturating_mul(pyg_saturating_mul(cells, b.rows), 2 * b.d));
    if (l.n_chunks > 1) {
        plan->n_phases = 2;
        plan->n_tasks[1] =
            pyg_split(q->ne[1] * q->ne[2] * q->ne[3], pyg_saturating_mul(l.n_chunks, v->ne[0]));
    }
    plan->flops = 2.0 * (double)(q->ne[0] + v->ne[0]) * (double)pyg_n_rows(q) * (double)v->ne[1];
    const int64_t parts = l.n_chunks > 1 ? l.n_units : 0;
    size_t floats, shared;
    if (__builtin_add_overflow(pyg_attn_layout(&b, NULL), (size_t)(l.part + 2 * v->ne[0]),
                               &floats) ||
        __builtin_mul_overflow(floats, sizeof(float), &plan->scratch_bytes) ||
        __builtin_mul_overflow((size_t)l.part, (size_t)parts, &shared) ||
        __builtin_mul_overflow(shared, sizeof(float), &plan->shared_bytes))
        return pyg_fail(PYG_STATUS_no_memory, "the work space would pass the address space");
    return PYG_OK;
}

/* ---- run ----------------------------------------------------------------------------------- */

/* Where a unit is. Blocks are visited from both ends in turn, so that under a causal mask
 * neighbouring units, which one thread takes, hold equal work. */
typedef struct unit {
    int64_t batch, head, block, chunk;
} unit;

static unit unit_at(const pyg_node_io *io, const layout *l, int64_t u) {
    const int64_t n_kv = io->src[1]->ne[2];
    const int64_t turn = u / l->n_chunks % l->n_blocks;
    const int64_t rest = u / l->n_chunks / l->n_blocks;
    return (unit){.batch = rest / n_kv,
                  .head = rest % n_kv,
                  .block = turn % 2 == 0 ? turn / 2 : l->n_blocks - 1 - turn / 2,
                  .chunk = u % l->n_chunks};
}

/* Number of a unit's part in shared memory: the chunks of one block are neighbours. */
static int64_t part_index(const pyg_node_io *io, const layout *l, const unit *at) {
    return ((at->batch * io->src[1]->ne[2] + at->head) * l->n_blocks + at->block) * l->n_chunks +
           at->chunk;
}

static void bind_part(pyg_attn_block *b, float *part) {
    b->sum = (double *)(void *)part;
    b->o = b->sum + b->rows;
    b->max = (float *)(b->o + b->rows * b->dv);
}

/* Result row i: o / sum, zeros when no cell was seen. `buf` is room for a row. */
static void write_row(const pyg_tensor *dst, const int64_t i[3], const double *o, double sum,
                      float *buf) {
    const int64_t dv = dst->ne[0];
    const double factor = sum == 0.0 ? 1.0 : 1.0 / sum;
    float *y = pyg_span_out(dst, i, 0, buf);
    for (int64_t j = 0; j < dv; j++) y[j] = (float)(o[j] * factor);
    pyg_span_out_end(dst, i, 0, dv, y);
}

static void run_unit(const pyg_task *task, const layout *l, int64_t u) {
    const pyg_tensor *q = task->io.src[0], *k = task->io.src[1];
    const unit at = unit_at(&task->io, l, u);
    const int64_t t0 = at.block * l->tokens;
    pyg_attn_block b = block_of(&task->io, l, pyg_min64(l->tokens, q->ne[1] - t0));
    float *part = (float *)task->scratch + pyg_attn_layout(&b, (float *)task->scratch);
    float *row = part + l->part;
    if (l->n_chunks > 1) part = (float *)task->shared + part_index(&task->io, l, &at) * l->part;
    bind_part(&b, part);
    memset(b.o, 0, (size_t)(b.rows * b.dv) * sizeof *b.o);
    for (int64_t r = 0; r < b.rows; r++) {
        b.max[r] = -INFINITY;
        b.sum[r] = 0.0;
        const int64_t i[3] = {t0 + r % b.tokens, at.head * l->group + r / b.tokens, at.batch};
        const float *from = pyg_span_in(q, i, 0, b.d, b.q + r * b.d);
        if (from != b.q + r * b.d) memcpy(b.q + r * b.d, from, (size_t)b.d * sizeof *b.q);
    }
    const pyg_attn_place place = {k, task->io.src[2], task->io.src[3], at.head, at.batch, t0};
    const int64_t last = pyg_min64(k->ne[1], (at.chunk + 1) * l->cells);
    for (int64_t c = at.chunk * l->cells; c < last; c += PYG_ATTN_TILE)
        pyg_attn_tile(&b, &place, c, pyg_min64(PYG_ATTN_TILE, last - c));
    for (int64_t r = 0; l->n_chunks == 1 && r < b.rows; r++)
        write_row(task->io.dst,
                  (int64_t[3]){at.head * l->group + r / b.tokens, t0 + r % b.tokens, at.batch},
                  b.o + r * b.dv, b.sum[r], row);
}

/* Joins the chunks of result row n, counted as (batch, token, head). */
static void join_row(const pyg_task *task, const layout *l, int64_t n) {
    const pyg_tensor *q = task->io.src[0];
    int64_t i[3];
    pyg_row_index(task->io.dst->ne, n, i);
    const unit at = {i[2], i[0] / l->group, i[1] / l->tokens, 0};
    const int64_t tokens = pyg_min64(l->tokens, q->ne[1] - at.block * l->tokens);
    pyg_attn_block b = block_of(&task->io, l, tokens);
    const int64_t r = i[0] % l->group * tokens + i[1] % l->tokens;
    float *parts = (float *)task->shared + part_index(&task->io, l, &at) * l->part;
    double *o = (double *)(void *)task->scratch;
    float max = -INFINITY;
    double sum = 0.0;
    for (int64_t c = 0; c < l->n_chunks; c++) {
        bind_part(&b, parts + c * l->part);
        if (b.sum[r] != 0.0 && !(b.max[r] <= max)) max = b.max[r];
    }
    memset(o, 0, (size_t)b.dv * sizeof *o);
    for (int64_t c = 0; c < l->n_chunks; c++) {
        bind_part(&b, parts + c * l->part);
        if (b.sum[r] == 0.0) continue; /* no cell of the chunk is visible */
        const double weight = (double)expf(b.max[r] - max);
        for (int64_t j = 0; j < b.dv; j++) o[j] += weight * b.o[r * b.dv + j];
        sum += weight * b.sum[r];
    }
    write_row(task->io.dst, i, o, sum, (float *)(o + b.dv));
}

void pyg_run_flash_attn_ext(const pyg_task *task) {
    const layout l = layout_of(&task->io);
    const bool join = task->phase == 1;
    int64_t first, last;
    pyg_task_range(task, join ? pyg_n_rows(task->io.dst) : l.n_units, &first, &last);
    for (int64_t u = first; u < last; u++) {
        if (join)
            join_row(task, &l, u);
        else
            run_unit(task, &l, u);
    }
}
