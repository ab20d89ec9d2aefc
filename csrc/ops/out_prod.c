/* Sum of outer products: out_prod(a (K, M), b (K, N)) -> (N, M), batched, any float dtype.
 *
 * Rows of a are rows of panels already, whatever M; b is turned to (N, K) first, so that gemm_tile
 * can walk its columns. */
#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/rules.h"

pyg_status pyg_infer_out_prod(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *a = &in->src[0]->t, *b = &in->src[1]->t;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    if (a->ndim < 2 || b->ndim < 2)
        return pyg_op_fail(in, PYG_STATUS_shape, "a must be (..., K, M) and b (..., K, N)");
    if (a->ne[1] != b->ne[1]) return pyg_op_fail(in, PYG_STATUS_shape, "the sizes K differ");
    for (int i = 2; i < PYG_MAX_DIMS; i++)
        if (a->ne[i] == 0 ? b->ne[i] != 0 : b->ne[i] % a->ne[i] != 0)
            return pyg_op_fail(in, PYG_STATUS_shape,
                               "leading axes of b must be multiples of those of a");
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    const int64_t ne[PYG_MAX_DIMS] = {a->ne[0], b->ne[0], b->ne[2], b->ne[3]};
    return pyg_infer_result(in, dtype, a->ndim > b->ndim ? a->ndim : b->ndim, ne);
}

/* How a node is cut up: the same for plan and for every task. */
typedef struct layout {
    bool direct;      /* gemm_tile may write dst */
    int64_t columns;  /* of a (and dst) in a unit: whole blocks of both */
    int64_t n_chunks; /* units along M */
    int64_t tokens;   /* rows of dst in a unit */
    int64_t n_blocks; /* units along N */
    int64_t kc;       /* rows of a in a panel */
    int64_t n_units;
} layout;

static layout layout_of(const pyg_node_io *io) {
    const pyg_tensor *a = io->src[0], *dst = io->dst;
    const int64_t block_a = pyg_dtype_row(a->dtype)->block;
    const int64_t block_dst = pyg_dtype_row(dst->dtype)->block;
    const int64_t block = block_a > block_dst ? block_a : block_dst; /* powers of two */
    layout l = {.direct = pyg_is_f32_rows(dst), .kc = pyg_panel_columns(a->ne[1], 1)};
    l.columns = pyg_unit_rows(dst->ne[0], pyg_round_up(PYG_PANEL, block));
    l.n_chunks = pyg_ceil_div(dst->ne[0], l.columns);
    l.tokens = pyg_min64(PYG_TASK_TOKENS, dst->ne[1]);
    l.n_blocks = pyg_ceil_div(dst->ne[1], PYG_TASK_TOKENS);
    l.n_units = l.n_chunks * l.n_blocks * dst->ne[2] * dst->ne[3];
    return l;
}

pyg_status pyg_plan_out_prod(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *b = io->src[1];
    const layout l = layout_of(io);
    const int64_t work = pyg_saturating_mul(l.columns * l.tokens, b->ne[1]);
    plan->flops = 2.0 * (double)b->ne[1] * (double)pyg_n_elements(io->dst);
    plan->n_phases = 2;
    plan->n_tasks[0] = pyg_split(pyg_n_rows(b), b->ne[0]);
    plan->n_tasks[1] = pyg_split(l.n_units, work);
    /* a row of a, panels, results; the first phase needs less */
    size_t *scratch = &plan->scratch_bytes;
    if (pyg_add_floats(scratch, l.columns, 1 + l.kc) ||
        (!l.direct && pyg_add_floats(scratch, l.columns, l.tokens)) ||
        pyg_add_floats(&plan->shared_bytes, pyg_n_rows(b), b->ne[0]))
        return pyg_fail(PYG_STATUS_no_memory, "the work space would pass the address space");
    if (*scratch < PYG_SPAN * sizeof(float)) *scratch = PYG_SPAN * sizeof(float);
    return PYG_OK;
}

/* b (..., K, N) to dense (..., N, K). */
static void turn_b(const pyg_task *task) {
    const pyg_tensor *b = task->io.src[1];
    const int64_t n = b->ne[0], k = b->ne[1];
    float *turned = (float *)(void *)task->shared;
    int64_t first, last, i[3];
    pyg_task_range(task, n > 0 ? pyg_n_rows(b) : 0, &first, &last);
    for (int64_t r = first; r < last; r++) {
        pyg_row_index(b->ne, r, i);
        float *column = turned + (r / k) * n * k + r % k;
        for (int64_t j = 0; j < n; j += PYG_SPAN) {
            const int64_t m = pyg_min64(PYG_SPAN, n - j);
            const float *x = pyg_span_in(b, i, j, m, (float *)(void *)task->scratch);
            for (int64_t c = 0; c < m; c++) column[(j + c) * k] = x[c];
        }
    }
}

/* Rows k0 .. k0+kc-1 of a, columns m0 .. m0+m-1, to panels; columns past m are zeros. */
static void load_panels(const pyg_tensor *a, const int64_t batch[2], int64_t k0, int64_t kc,
                        int64_t m0, int64_t m, float *row, float *panels) {
    const int64_t wide = pyg_round_up(m, PYG_PANEL);
    for (int64_t i = 0; i < kc; i++) {
        const int64_t at[3] = {k0 + i, batch[0], batch[1]};
        pyg_load_span(a, at, m0, m, row);
        for (int64_t c = m; c < wide; c++) row[c] = 0.0f;
        for (int64_t c = 0; c < wide; c += PYG_PANEL)
            memcpy(panels + c * kc + i * PYG_PANEL, row + c, PYG_PANEL * sizeof *row);
    }
}

static void run_unit(const pyg_task *task, const layout *l, int64_t unit) {
    const pyg_tensor *a = task->io.src[0], *dst = task->io.dst;
    const int64_t k = a->ne[1], m0 = unit % l->n_chunks * l->columns;
    const int64_t m = pyg_min64(l->columns, dst->ne[0] - m0);
    const int64_t t0 = unit / l->n_chunks % l->n_blocks * l->tokens;
    const int64_t n = pyg_min64(l->tokens, dst->ne[1] - t0);
    const int64_t batch = unit / l->n_chunks / l->n_blocks;
    const int64_t i2 = batch % dst->ne[2], i3 = batch / dst->ne[2];
    const int64_t from[2] = {i2 / (dst->ne[2] / a->ne[2]), i3 / (dst->ne[3] / a->ne[3])};
    const float *x = (const float *)(const void *)task->shared + (batch * dst->ne[1] + t0) * k;
    float *row = (float *)(void *)task->scratch;
    float *panels = row + l->columns;
    float *y = panels + l->columns * l->kc;
    int64_t ldy = l->columns;
    if (l->direct) {
        y = (float *)(void *)pyg_row(dst, t0, i2, i3) + m0;
        ldy = (int64_t)(dst->nb[1] / sizeof(float));
    }
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += l->kc) {
        const int64_t kc = pyg_min64(l->kc, k - k0);
        load_panels(a, from, k0, kc, m0, m, row, panels);
        pyg_sweep(panels, kc, m, x + k0, k, n, y, ldy, k0 > 0);
        if (k == 0) break;
    }
    for (int64_t t = 0; !l->direct && t < n; t++)
        pyg_span_out_end(dst, (int64_t[3]){t0 + t, i2, i3}, m0, m, y + t * ldy);
}

void pyg_run_out_prod(const pyg_task *task) {
    if (task->phase == 0) {
        turn_b(task);
        return;
    }
    const layout l = layout_of(&task->io);
    int64_t first, last;
    pyg_task_range(task, l.n_units, &first, &last);
    for (int64_t unit = first; unit < last; unit++) run_unit(task, &l, unit);
}
