/* Matrix product: mul_mat(w (N, K), x (T, K)) -> (T, N), batched, any float dtype on either side.
 *
 * Few tokens: every row of w is dotted with every token (pyg_mv), so that w is read once, as it
 * lies. Many: panels of 16 rows of w are decoded to F32 and packed once, then swept over a block of
 * tokens by gemm_tile. The path and the split into tasks follow from the shapes alone, so the bits
 * do not depend on the threads. */
#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/rules.h"

/* Bytes of w that a task of the few-tokens path streams at least. */
#define FEW_BYTES 16384
#define FEW_ROWS_MAX 256

/* ---- infer --------------------------------------------------------------------------------- */

pyg_status pyg_infer_mul_mat(pyg_infer *in) {
    const pyg_tensor *w = &in->src[0]->t, *x = &in->src[1]->t;
    const pyg_result_params *params = in->params;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    if (w->ndim < 2 || x->ndim < 1)
        return pyg_op_fail(in, PYG_STATUS_shape, "w must be (..., N, K) and x (..., T, K) or (K,)");
    if (w->ne[0] != x->ne[0]) return pyg_op_fail(in, PYG_STATUS_shape, "inner sizes differ");
    for (int a = 2; a < PYG_MAX_DIMS; a++)
        if (w->ne[a] == 0 ? x->ne[a] != 0 : x->ne[a] % w->ne[a] != 0)
            return pyg_op_fail(in, PYG_STATUS_shape,
                               "leading axes of x must be multiples of those of w");
    pyg_dtype dtype = PYG_DTYPE_f32;
    if (params->dtype >= 0) PYG_TRY(pyg_result_dtype(in, params->dtype, 0, 1, &dtype));
    if (w->ne[1] % pyg_dtype_row(dtype)->block != 0)
        return pyg_op_fail(in, PYG_STATUS_shape, "a result in %s needs N to be a multiple of %d",
                           pyg_dtype_row(dtype)->name, pyg_dtype_row(dtype)->block);
    const int64_t ne[PYG_MAX_DIMS] = {w->ne[1], x->ne[1], x->ne[2], x->ne[3]};
    const int ndim = w->ndim > x->ndim ? w->ndim : x->ndim;
    return pyg_infer_result(in, dtype, x->ndim == 1 ? ndim - 1 : ndim, ne);
}

/* ---- plan ---------------------------------------------------------------------------------- */

/* How a node is cut up: the same for plan and for every task. */
typedef struct layout {
    bool convert; /* x becomes dense F32 in shared memory first */
    bool gather;  /* few: rows of w are not contiguous, so mv cannot walk them */
    bool direct;  /* many: gemm_tile may write dst */
    bool few;
    int64_t rows;     /* rows of w in a unit */
    int64_t n_chunks; /* units along N */
    int64_t tokens;   /* tokens in a unit */
    int64_t n_blocks; /* units along T */
    int64_t kc;       /* many: columns of a panel */
    int64_t n_units;
} layout;

static int64_t few_rows(const pyg_tensor *w, bool gather) {
    const size_t bytes = pyg_row_bytes(gather ? PYG_DTYPE_f32 : w->dtype, w->ne[0]);
    if (bytes == 0) return FEW_ROWS_MAX;
    return pyg_clamp64(pyg_ceil_div(FEW_BYTES, (int64_t)pyg_min64((int64_t)bytes, FEW_BYTES)), 1,
                       FEW_ROWS_MAX);
}

static layout layout_of(const pyg_node_io *io) {
    const pyg_tensor *w = io->src[0], *x = io->src[1], *dst = io->dst;
    const int64_t n = w->ne[1], n_tok = x->ne[1], k = w->ne[0];
    layout l = {.convert = !pyg_is_f32_rows(x),
                .gather = !pyg_row_contiguous(w),
                .direct = pyg_is_f32_rows(dst),
                .few = n_tok < PYG_FEW_TOKENS};
    /* multiples of 32 where dst is of a block format */
    const int64_t step = pyg_round_up(PYG_PANEL, pyg_dtype_row(dst->dtype)->block);
    if (l.few) {
        l.rows = pyg_round_up(few_rows(w, l.gather), step);
        l.tokens = n_tok;
        l.n_blocks = 1;
    } else {
        l.rows = pyg_unit_rows(n, step);
        l.tokens = PYG_TASK_TOKENS;
        l.n_blocks = pyg_ceil_div(n_tok, PYG_TASK_TOKENS);
        l.kc = pyg_panel_columns(k, pyg_dtype_row(w->dtype)->block);
    }
    l.n_chunks = pyg_ceil_div(n, l.rows);
    const int64_t batches = l.few ? w->ne[2] * w->ne[3] : x->ne[2] * x->ne[3];
    l.n_units = batches * l.n_chunks * l.n_blocks;
    return l;
}

/* Scratch, in this order. few: gathered rows, results. many: rows of a panel, panels, results. */
static bool scratch_of(const pyg_node_io *io, const layout *l, size_t *bytes) {
    const int64_t k = io->src[0]->ne[0];
    if (l->few)
        return (l->gather && pyg_add_floats(bytes, l->rows, k)) ||
               pyg_add_floats(bytes, l->rows, 1);
    return pyg_add_floats(bytes, PYG_PANEL + l->rows, l->kc) ||
           (!l->direct && pyg_add_floats(bytes, l->rows, l->tokens));
}

pyg_status pyg_plan_mul_mat(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[1];
    const layout l = layout_of(io);
    const int64_t tokens = l.few ? pyg_n_rows(x) : pyg_min64(l.tokens, x->ne[1]);
    const int64_t work = pyg_saturating_mul(pyg_saturating_mul(l.rows, io->src[0]->ne[0]), tokens);
    const int phase = l.convert ? 1 : 0;
    plan->n_phases = phase + 1;
    plan->n_tasks[phase] = pyg_split(l.n_units, work);
    if (l.convert) plan->n_tasks[0] = pyg_split(pyg_n_rows(x), x->ne[0]);
    plan->flops = 2.0 * (double)x->ne[0] * (double)pyg_n_elements(io->dst);
    if (scratch_of(io, &l, &plan->scratch_bytes) ||
        (l.convert && pyg_add_floats(&plan->shared_bytes, pyg_n_rows(x), x->ne[0])))
        return pyg_fail(PYG_STATUS_no_memory, "the work space would pass the address space");
    return PYG_OK;
}

/* ---- run ----------------------------------------------------------------------------------- */

static void convert_x(const pyg_task *task) {
    const pyg_tensor *x = task->io.src[1];
    int64_t first, last;
    pyg_task_range(task, x->ne[0] > 0 ? pyg_n_rows(x) : 0, &first, &last);
    pyg_convert_rows(x, first, last, (float *)(void *)task->shared);
}

/* A chunk of rows of one w batch against all tokens of the x batches that use it. */
static void few_unit(const pyg_task *task, const layout *l, const pyg_tensor *x, int64_t unit) {
    const pyg_tensor *w = task->io.src[0], *dst = task->io.dst;
    const int64_t k = w->ne[0], n0 = unit % l->n_chunks * l->rows;
    const int64_t n = pyg_min64(l->rows, w->ne[1] - n0);
    const int64_t w2 = unit / l->n_chunks % w->ne[2], w3 = unit / l->n_chunks / w->ne[2];
    const int64_t r2 = x->ne[2] / w->ne[2], r3 = x->ne[3] / w->ne[3];
    float *rows = (float *)task->scratch;
    float *buf = rows + (l->gather ? l->rows * k : 0);
    const void *from = l->gather ? (const void *)rows : pyg_row(w, n0, w2, w3);
    const size_t stride = l->gather ? (size_t)k * sizeof(float) : w->nb[1];
    const pyg_mv_fn mv = pyg_mv(l->gather ? PYG_DTYPE_f32 : w->dtype);
    for (int64_t r = 0; l->gather && r < n; r++)
        pyg_load_span(w, (int64_t[3]){n0 + r, w2, w3}, 0, k, rows + r * k);
    for (int64_t i3 = w3 * r3; i3 < (w3 + 1) * r3; i3++)
        for (int64_t i2 = w2 * r2; i2 < (w2 + 1) * r2; i2++)
            for (int64_t t = 0; t < x->ne[1]; t++) {
                const int64_t i[3] = {t, i2, i3};
                float *y = pyg_span_out(dst, i, n0, buf);
                mv(k, n, from, stride, (const float *)pyg_row(x, t, i2, i3), y);
                pyg_span_out_end(dst, i, n0, n, y);
            }
}

/* A chunk of rows of w against a block of tokens of one x batch. */
static void many_unit(const pyg_task *task, const layout *l, const pyg_tensor *x, int64_t unit) {
    const pyg_tensor *w = task->io.src[0], *dst = task->io.dst;
    const int64_t k = w->ne[0], n0 = unit % l->n_chunks * l->rows;
    const int64_t n = pyg_min64(l->rows, w->ne[1] - n0);
    const int64_t t0 = unit / l->n_chunks % l->n_blocks * l->tokens;
    const int64_t m = pyg_min64(l->tokens, x->ne[1] - t0);
    const int64_t batch = unit / l->n_chunks / l->n_blocks;
    const int64_t i2 = batch % x->ne[2], i3 = batch / x->ne[2];
    const int64_t w2 = i2 / (x->ne[2] / w->ne[2]), w3 = i3 / (x->ne[3] / w->ne[3]);
    float *rows = (float *)task->scratch;
    float *panels = rows + PYG_PANEL * l->kc;
    float *y = panels + l->rows * l->kc;
    int64_t ldy = l->rows;
    if (l->direct) {
        y = (float *)pyg_row(dst, t0, i2, i3) + n0;
        ldy = (int64_t)(dst->nb[1] / sizeof(float));
    }
    const float *xt = (const float *)pyg_row(x, t0, i2, i3);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += l->kc) {
        const int64_t kc = pyg_min64(l->kc, k - k0);
        for (int64_t c = 0; c < n; c += PYG_PANEL)
            pyg_load_panel(w, (int64_t[3]){n0 + c, w2, w3}, pyg_min64(PYG_PANEL, n - c), k0, kc,
                           rows, panels + c * kc);
        pyg_sweep(panels, kc, n, xt + k0, (int64_t)(x->nb[1] / sizeof(float)), m, y, ldy, k0 > 0);
        if (k == 0) break;
    }
    for (int64_t t = 0; !l->direct && t < m; t++)
        pyg_span_out_end(dst, (int64_t[3]){t0 + t, i2, i3}, n0, n, y + t * ldy);
}

void pyg_run_mul_mat(const pyg_task *task) {
    const layout l = layout_of(&task->io);
    pyg_tensor x = *task->io.src[1];
    if (l.convert && task->phase == 0) {
        convert_x(task);
        return;
    }
    if (l.convert) x = pyg_dense_f32(&x, task->shared);
    int64_t first, last;
    pyg_task_range(task, l.n_units, &first, &last);
    for (int64_t unit = first; unit < last; unit++) {
        if (l.few)
            few_unit(task, &l, &x, unit);
        else
            many_unit(task, &l, &x, unit);
    }
}
