/* Products with a matrix chosen by index: mul_mat_id(w (R, N, K), x (T, U or 1, K), ids (T, U)) ->
 * (T, U, N), the experts of a mixture.
 *
 * The first phase checks all indices and sorts the T * U pairs by matrix. In the second, a unit is
 * a chunk of rows of one matrix against the pairs that chose it: dotted when they are few, else
 * through packed panels. Units go chunk by chunk, all matrices of each, so that tasks are even
 * whatever was chosen. */
#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/rules.h"

pyg_status pyg_infer_mul_mat_id(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *w = &in->src[0]->t, *x = &in->src[1]->t, *ids = &in->src[2]->t;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    PYG_TRY(pyg_need_index(in, 2));
    if (w->ndim != 3 || x->ndim != 3 || ids->ndim != 2)
        return pyg_op_fail(in, PYG_STATUS_shape, "w must be (R, N, K), x (T, U, K), ids (T, U)");
    if (w->ne[0] != x->ne[0]) return pyg_op_fail(in, PYG_STATUS_shape, "inner sizes differ");
    if (x->ne[2] != ids->ne[1] || (x->ne[1] != ids->ne[0] && x->ne[1] != 1))
        return pyg_op_fail(in, PYG_STATUS_shape, "x must have one row, or U, for each row of ids");
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    const int64_t ne[PYG_MAX_DIMS] = {w->ne[1], ids->ne[0], ids->ne[1], 1};
    return pyg_infer_result(in, dtype, 3, ne);
}

/* ---- plan ---------------------------------------------------------------------------------- */

/* How a node is cut up: the same for plan and for every task. */
typedef struct layout {
    bool convert;     /* x becomes dense F32 in shared memory first */
    bool gather;      /* rows of w are not contiguous, so mv cannot walk them */
    int64_t n_pairs;  /* T * U */
    int64_t rows;     /* of w in a unit */
    int64_t n_chunks; /* units along N */
    int64_t tokens;   /* pairs that a pass of the panels takes */
    int64_t kc;       /* columns of a panel */
    int64_t n_units;
} layout;

static layout layout_of(const pyg_node_io *io) {
    const pyg_tensor *w = io->src[0], *ids = io->src[2];
    layout l = {.convert = !pyg_is_f32_rows(io->src[1]),
                .gather = !pyg_row_contiguous(w),
                .n_pairs = pyg_n_elements(ids),
                .kc = pyg_panel_columns(w->ne[0], pyg_dtype_row(w->dtype)->block)};
    l.rows = pyg_unit_rows(w->ne[1], pyg_round_up(PYG_PANEL, pyg_dtype_row(io->dst->dtype)->block));
    l.n_chunks = pyg_ceil_div(w->ne[1], l.rows);
    l.tokens = pyg_min64(PYG_TASK_TOKENS, l.n_pairs);
    l.n_units = l.n_pairs == 0 ? 0 : pyg_saturating_mul(l.n_chunks, w->ne[2]);
    return l;
}

/* Shared: begin[R + 2], the matrix of each pair, the pairs by matrix, then x. */
static bool lists_bytes(const pyg_node_io *io, const layout *l, size_t *bytes) {
    const int64_t n = 2 * sizeof(int64_t) / sizeof(float);
    return pyg_add_floats(bytes, io->src[0]->ne[2] + 2, n / 2) ||
           pyg_add_floats(bytes, l->n_pairs, n);
}

/* Scratch, in this order. few: gathered rows, results. many: rows of a panel, panels, a slice of x,
 * results. */
static bool scratch_of(const layout *l, int64_t k, size_t *bytes) {
    size_t few = 0, many = 0;
    if ((l->gather && pyg_add_floats(&few, l->rows, k)) || pyg_add_floats(&few, l->rows, 1) ||
        pyg_add_floats(&many, PYG_PANEL + l->rows + PYG_SLICE_TOKENS, l->kc) ||
        pyg_add_floats(&many, l->rows, l->tokens))
        return true;
    *bytes = l->n_pairs < PYG_FEW_TOKENS || few > many ? few : many;
    return false;
}

pyg_status pyg_plan_mul_mat_id(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *w = io->src[0], *x = io->src[1];
    const layout l = layout_of(io);
    const int64_t mean = w->ne[2] == 0 ? 0 : pyg_ceil_div(l.n_pairs, w->ne[2]);
    plan->flops = 2.0 * (double)w->ne[0] * (double)pyg_n_elements(io->dst);
    /* only the matrices that are chosen are read: here, as if each pair chose another one */
    if (l.n_pairs < w->ne[2])
        plan->bytes -= pyg_moved_bytes(w) * (1.0 - (double)l.n_pairs / (double)w->ne[2]);
    plan->n_phases = 2;
    plan->n_tasks[0] = 1 + (l.convert ? pyg_split(pyg_n_rows(x), x->ne[0]) : 0);
    plan->n_tasks[1] = pyg_split(l.n_units, pyg_saturating_mul(l.rows * mean, w->ne[0]));
    if (scratch_of(&l, w->ne[0], &plan->scratch_bytes) ||
        lists_bytes(io, &l, &plan->shared_bytes) ||
        (l.convert && pyg_add_floats(&plan->shared_bytes, pyg_n_rows(x), x->ne[0])))
        return pyg_fail(PYG_STATUS_no_memory, "the work space would pass the address space");
    return PYG_OK;
}

/* ---- first phase --------------------------------------------------------------------------- */

/* begin[e] .. begin[e + 1] - 1 are the places in `order` of the pairs that chose matrix e. */
typedef struct lists {
    int64_t *begin, *chosen, *order;
    char *x;
} lists;

static lists lists_of(const pyg_task *task, const layout *l) {
    int64_t *begin = (int64_t *)(void *)task->shared;
    int64_t *chosen = begin + task->io.src[0]->ne[2] + 2;
    return (lists){begin, chosen, chosen + l->n_pairs, (char *)(chosen + 2 * l->n_pairs)};
}

/* Counts sit two places up, so that after the sums begin[e + 1] is where e starts, and after the
 * placing where it ends. What is used later is the copy that was checked. */
static void sort_pairs(const pyg_task *task, const layout *l) {
    const pyg_tensor *w = task->io.src[0], *ids = task->io.src[2];
    const lists s = lists_of(task, l);
    memset(s.begin, 0, (size_t)(w->ne[2] + 2) * sizeof *s.begin);
    for (int64_t p = 0; p < l->n_pairs; p++) {
        s.chosen[p] = pyg_index_at(ids, p);
        if (s.chosen[p] < 0 || s.chosen[p] >= w->ne[2]) {
            pyg_fault_record(task->fault, p, s.chosen[p]);
            return;
        }
        s.begin[s.chosen[p] + 2]++;
    }
    for (int64_t e = 0; e < w->ne[2]; e++) s.begin[e + 2] += s.begin[e + 1];
    for (int64_t p = 0; p < l->n_pairs; p++) s.order[s.begin[s.chosen[p] + 1]++] = p;
}

static void first_phase(const pyg_task *task, const layout *l) {
    const pyg_tensor *x = task->io.src[1];
    if (task->index == 0) {
        sort_pairs(task, l);
        return;
    }
    pyg_task rest = *task;
    rest.index--;
    rest.n_tasks--;
    int64_t first, last;
    pyg_task_range(&rest, x->ne[0] > 0 ? pyg_n_rows(x) : 0, &first, &last);
    pyg_convert_rows(x, first, last, (float *)(void *)lists_of(task, l).x);
}

/* ---- second phase -------------------------------------------------------------------------- */

/* The pairs of one matrix and a chunk of its rows. */
typedef struct unit {
    const pyg_tensor *x; /* F32 rows */
    const int64_t *pairs;
    int64_t n_pairs, matrix, n0, n;
} unit;

static const float *x_of(const unit *u, const pyg_tensor *dst, int64_t pair) {
    const int64_t t = pair / dst->ne[1], i = u->x->ne[1] == 1 ? 0 : pair % dst->ne[1];
    return (const float *)(const void *)pyg_row(u->x, i, t, 0);
}

static void few_unit(const pyg_task *task, const layout *l, const unit *u) {
    const pyg_tensor *w = task->io.src[0], *dst = task->io.dst;
    const int64_t k = w->ne[0];
    float *rows = (float *)(void *)task->scratch;
    float *buf = rows + (l->gather ? l->rows * k : 0);
    const void *from = l->gather ? (const void *)rows : pyg_row(w, u->n0, u->matrix, 0);
    const size_t stride = l->gather ? (size_t)k * sizeof(float) : w->nb[1];
    const pyg_mv_fn mv = pyg_mv(l->gather ? PYG_DTYPE_f32 : w->dtype);
    for (int64_t r = 0; l->gather && r < u->n; r++)
        pyg_load_span(w, (int64_t[3]){u->n0 + r, u->matrix, 0}, 0, k, rows + r * k);
    for (int64_t j = 0; j < u->n_pairs; j++) {
        const int64_t pair = u->pairs[j], i[3] = {pair % dst->ne[1], pair / dst->ne[1], 0};
        float *y = pyg_span_out(dst, i, u->n0, buf);
        mv(k, u->n, from, stride, x_of(u, dst, pair), y);
        pyg_span_out_end(dst, i, u->n0, u->n, y);
    }
}

/* At most l->tokens of the pairs, from `first` on. */
static void many_pass(const pyg_task *task, const layout *l, const unit *u, int64_t first) {
    const pyg_tensor *w = task->io.src[0], *dst = task->io.dst;
    const int64_t k = w->ne[0], m = pyg_min64(l->tokens, u->n_pairs - first);
    float *rows = (float *)(void *)task->scratch;
    float *panels = rows + PYG_PANEL * l->kc;
    float *slice = panels + l->rows * l->kc;
    float *y = slice + PYG_SLICE_TOKENS * l->kc;
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += l->kc) {
        const int64_t kc = pyg_min64(l->kc, k - k0);
        for (int64_t c = 0; c < u->n; c += PYG_PANEL)
            pyg_load_panel(w, (int64_t[3]){u->n0 + c, u->matrix, 0}, pyg_min64(PYG_PANEL, u->n - c),
                           k0, kc, rows, panels + c * kc);
        for (int64_t t = 0; t < m; t += PYG_SLICE_TOKENS) {
            const int64_t count = pyg_min64(PYG_SLICE_TOKENS, m - t);
            for (int64_t j = 0; kc > 0 && j < count; j++)
                memcpy(slice + j * kc, x_of(u, dst, u->pairs[first + t + j]) + k0,
                       (size_t)kc * sizeof *slice);
            pyg_sweep(panels, kc, u->n, slice, kc, count, y + t * l->rows, l->rows, k0 > 0);
        }
        if (k == 0) break;
    }
    for (int64_t t = 0; t < m; t++) {
        const int64_t pair = u->pairs[first + t];
        pyg_span_out_end(dst, (int64_t[3]){pair % dst->ne[1], pair / dst->ne[1], 0}, u->n0, u->n,
                         y + t * l->rows);
    }
}

void pyg_run_mul_mat_id(const pyg_task *task) {
    const pyg_tensor *w = task->io.src[0];
    const layout l = layout_of(&task->io);
    if (task->phase == 0) {
        first_phase(task, &l);
        return;
    }
    const lists s = lists_of(task, &l);
    pyg_tensor x = *task->io.src[1];
    if (l.convert) x = pyg_dense_f32(&x, s.x);
    int64_t k, last;
    pyg_task_range(task, l.n_units, &k, &last);
    for (; k < last; k++) {
        const int64_t e = k % w->ne[2], n0 = k / w->ne[2] * l.rows;
        const unit u = {.x = &x,
                        .pairs = s.order + s.begin[e],
                        .n_pairs = s.begin[e + 1] - s.begin[e],
                        .matrix = e,
                        .n0 = n0,
                        .n = pyg_min64(l.rows, w->ne[1] - n0)};
        if (u.n_pairs < PYG_FEW_TOKENS)
            few_unit(task, &l, &u);
        else
            for (int64_t t = 0; t < u.n_pairs; t += l.tokens) many_pass(task, &l, &u, t);
    }
}
