/* get_rows, set_rows, add_id: rows of a table read or written by index.
 *
 * Indices are known only when the program runs: one outside the table reaches the fault slot, and
 * no row is read or written through it. */
#include <string.h>

#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

/* ---- get_rows ---- */

/* A table (R, E) takes ids of any shape (..., n); one with batch axes takes ids with the same. */
pyg_status pyg_infer_get_rows(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t, *ids = &in->src[1]->t;
    const bool keep = !pyg_has_flag(x, PYG_DT_FLOAT); /* integers do not pass through F32 */
    if (keep && p->dtype >= 0 && p->dtype != (int64_t)x->dtype)
        return pyg_op_fail(in, PYG_STATUS_dtype, "a table of integers keeps its dtype");
    PYG_TRY(pyg_need_index(in, 1));
    if (x->ndim < 2)
        return pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis of rows and one of elements");
    if (ids->ndim < 1 || ids->ndim >= PYG_MAX_DIMS)
        return pyg_op_fail(in, PYG_STATUS_shape, "ids must have 1 to 3 axes");
    if (x->ndim > 2) {
        bool fits = ids->ndim == x->ndim - 1;
        for (int a = 2; a < x->ndim && fits; a++) fits = ids->ne[a - 1] == x->ne[a];
        if (!fits)
            return pyg_op_fail(in, PYG_STATUS_shape, "ids must have the batch axes of x, then one");
    }
    int64_t ne[PYG_MAX_DIMS] = {x->ne[0], ids->ne[0], ids->ne[1], ids->ne[2]};
    pyg_dtype dtype = x->dtype;
    if (!keep) PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, ids->ndim + 1, ne);
}

pyg_status pyg_plan_get_rows(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    const double rows_read =
        (double)pyg_n_rows(io->dst) * (double)pyg_row_bytes(x->dtype, x->ne[0]);
    plan->n_tasks[0] = pyg_split_pieces(io->dst, 1);
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    pyg_plan_copy_cost(plan, rows_read + pyg_moved_bytes(io->src[1]) + pyg_moved_bytes(io->dst));
    return PYG_OK;
}

/* The result is dense, and zero bytes are 0 in every dtype. */
static void zero_span(const pyg_tensor *dst, const pyg_piece *p) {
    const int64_t block = pyg_dtype_row(dst->dtype)->block;
    char *row = pyg_row(dst, p->i[0], p->i[1], p->i[2]);
    memset(row + (size_t)(p->j0 / block) * dst->nb[0], 0, (size_t)(p->n / block) * dst->nb[0]);
}

void pyg_run_get_rows(const pyg_task *task) {
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0], *ids = task->io.src[1];
    float *buf = (float *)(void *)task->scratch;
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(dst), &k, &last);
    if (k >= last) return;
    const int64_t spans = pyg_spans_a_row(dst);
    pyg_piece p;
    pyg_piece_at(dst, k, &p);
    for (; k < last; k++, pyg_piece_next(dst, &p)) {
        const int64_t position = k / spans; /* the result's rows are in the order of ids */
        const int64_t id = pyg_index_at(ids, position);
        if (id < 0 || id >= x->ne[1]) {
            pyg_fault_record(task->fault, position, id);
            zero_span(dst, &p);
            continue;
        }
        const int64_t from[3] = {id, p.i[1], p.i[2]};
        pyg_span_copy(x, from, dst, p.i, p.j0, p.n, buf);
    }
}

/* ---- add_id ---- */

pyg_status pyg_infer_add_id(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *a = &in->src[0]->t, *b = &in->src[1]->t, *ids = &in->src[2]->t;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    PYG_TRY(pyg_need_index(in, 2));
    if (b->ndim != 2 || a->ndim < 2 || a->ne[0] != b->ne[0])
        return pyg_op_fail(in, PYG_STATUS_shape, "a must be (..., E) and b (R, E)");
    if (ids->ndim != a->ndim - 1 || ids->ne[0] != a->ne[1] || ids->ne[1] != a->ne[2] ||
        ids->ne[2] != a->ne[3])
        return pyg_op_fail(in, PYG_STATUS_shape, "ids must have one index for each row of a");
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, p->dtype, 0, 1, &dtype));
    return pyg_infer_result(in, dtype, a->ndim, a->ne);
}

pyg_status pyg_plan_add_id(const pyg_node_io *io, pyg_plan *plan) {
    plan->n_tasks[0] = pyg_split_pieces(io->dst, 1);
    plan->scratch_bytes = 3 * PYG_SPAN * sizeof(float);
    const pyg_tensor *a = io->src[0], *b = io->src[1];
    plan->flops = (double)pyg_n_elements(io->dst);
    plan->bytes = pyg_moved_bytes(a) + pyg_moved_bytes(io->src[2]) + pyg_moved_bytes(io->dst) +
                  (double)pyg_n_rows(a) * (double)pyg_row_bytes(b->dtype, b->ne[0]);
    return PYG_OK;
}

void pyg_run_add_id(const pyg_task *task) {
    const pyg_tensor *dst = task->io.dst, *a = task->io.src[0], *b = task->io.src[1];
    float *buf = (float *)(void *)task->scratch;
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(dst), &k, &last);
    if (k >= last) return;
    const int64_t spans = pyg_spans_a_row(dst);
    pyg_piece p;
    pyg_piece_at(dst, k, &p);
    for (; k < last; k++, pyg_piece_next(dst, &p)) {
        const int64_t position = k / spans;
        const int64_t id = pyg_index_at(task->io.src[2], position);
        if (id < 0 || id >= b->ne[1]) {
            pyg_fault_record(task->fault, position, id);
            zero_span(dst, &p);
            continue;
        }
        const int64_t from[3] = {id, 0, 0};
        const float *x = pyg_span_in(a, p.i, p.j0, p.n, buf);
        const float *row = pyg_span_in(b, from, p.j0, p.n, buf + PYG_SPAN);
        float *y = pyg_span_out(dst, p.i, p.j0, buf + 2 * PYG_SPAN);
        pyg_k->add(p.n, x, row, y);
        pyg_span_out_end(dst, p.i, p.j0, p.n, y);
    }
}

/* ---- set_rows ---- */

pyg_status pyg_infer_set_rows(pyg_infer *in) {
    const pyg_tensor *dst = &in->src[0]->t, *x = &in->src[1]->t, *ids = &in->src[2]->t;
    PYG_TRY(pyg_need_writable(in, 0));
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    PYG_TRY(pyg_need_index(in, 2));
    PYG_TRY(pyg_need_encoder(in, x->dtype, dst->dtype));
    if (dst->ndim < 2)
        return pyg_op_fail(in, PYG_STATUS_shape, "dst needs an axis of rows and one of elements");
    if (x->ndim != dst->ndim || x->ne[0] != dst->ne[0] || x->ne[2] != dst->ne[2] ||
        x->ne[3] != dst->ne[3])
        return pyg_op_fail(in, PYG_STATUS_shape, "x and dst may differ only in their row counts");
    const bool shared = ids->ndim == 1; /* by every batch */
    if (ids->ne[0] != x->ne[1] ||
        !(shared || (ids->ndim == x->ndim - 1 && ids->ne[1] == x->ne[2] && ids->ne[2] == x->ne[3])))
        return pyg_op_fail(in, PYG_STATUS_shape, "ids must have one index for each row of x");
    in->out = *dst;
    in->view_of = 0;
    in->view_off = 0;
    return PYG_OK;
}

/* Phase 0 checks every index and keeps a copy, so that what phase 1 uses is what was checked. In
 * phase 1 a row of dst belongs to one task, which takes the writes in order: the last of equal
 * indices wins whatever the thread count. */
pyg_status pyg_plan_set_rows(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[1], *ids = io->src[2];
    size_t bytes;
    if (__builtin_mul_overflow((size_t)pyg_n_elements(ids), sizeof(int64_t), &bytes))
        return pyg_fail(PYG_STATUS_shape, "there are too many indices");
    const int64_t wanted = pyg_split_pieces(x, 1);
    plan->n_phases = 2;
    plan->n_tasks[0] = 1;
    plan->n_tasks[1] = 1;
    /* a power of two: the owner of a row is a mask away, and runs of rows spread evenly */
    while (plan->n_tasks[1] * 2 <= wanted) plan->n_tasks[1] *= 2;
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    plan->shared_bytes = bytes;
    const double written = (double)pyg_row_bytes(io->dst->dtype, io->dst->ne[0]);
    pyg_plan_copy_cost(plan,
                       pyg_moved_bytes(x) + pyg_moved_bytes(ids) + (double)pyg_n_rows(x) * written);
    return PYG_OK;
}

static void check_ids(const pyg_task *task) {
    const pyg_tensor *dst = task->io.dst, *ids = task->io.src[2];
    int64_t *copy = (int64_t *)(void *)task->shared;
    const int64_t n = pyg_n_elements(ids);
    for (int64_t k = 0; k < n; k++) {
        copy[k] = pyg_index_at(ids, k);
        if (copy[k] < 0 || copy[k] >= dst->ne[1]) {
            pyg_fault_record(task->fault, k, copy[k]);
            return;
        }
    }
}

void pyg_run_set_rows(const pyg_task *task) {
    if (task->phase == 0) {
        check_ids(task);
        return;
    }
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[1], *ids = task->io.src[2];
    const int64_t *copy = (const int64_t *)(const void *)task->shared;
    const int64_t rows = pyg_n_rows(x), n_ids = pyg_n_elements(ids);
    if (x->ne[0] == 0) return;
    for (int64_t r = 0, k = 0; r < rows; r++, k++) {
        if (k == n_ids) k = 0; /* the next batch shares the ids */
        const int64_t id = copy[k];
        if ((id & (task->n_tasks - 1)) != task->index) continue;
        int64_t from[3];
        pyg_row_index(x->ne, r, from);
        const int64_t to[3] = {id, from[1], from[2]};
        for (int64_t j = 0; j < x->ne[0]; j += PYG_SPAN) {
            const int64_t left = x->ne[0] - j, n = left < PYG_SPAN ? left : PYG_SPAN;
            pyg_span_copy(x, from, dst, to, j, n, (float *)(void *)task->scratch);
        }
    }
}
