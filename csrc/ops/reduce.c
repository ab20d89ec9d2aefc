/* sum, sum_rows, mean, argmax, cumsum: rows to numbers.
 *
 * Sums are kept in double and rounded once. Long rows are cut into chunks whose borders depend on
 * the shape alone, and the parts are put together in order: the same bits for any thread count. */
#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

/* Elements of a row that one task adds up: some 8 us of work. */
#define CHUNK ((int64_t)16 * PYG_SPAN)

/* ---- shapes ---- */

static pyg_status infer_float_rows(pyg_infer *in) {
    PYG_TRY(pyg_need_float(in, 0));
    return in->src[0]->t.ndim >= 1 ? PYG_OK : pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis");
}

static pyg_status infer_f32(pyg_infer *in, int ndim, const int64_t *ne) {
    const pyg_result_params *p = in->params;
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, ndim, ne);
}

pyg_status pyg_infer_sum(pyg_infer *in) {
    PYG_TRY(pyg_need_float(in, 0));
    return infer_f32(in, 0, NULL);
}

pyg_status pyg_infer_sum_rows(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(infer_float_rows(in));
    const int64_t ne[PYG_MAX_DIMS] = {1, x->ne[1], x->ne[2], x->ne[3]};
    return infer_f32(in, x->ndim, ne);
}

pyg_status pyg_infer_cumsum(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(infer_float_rows(in));
    return infer_f32(in, x->ndim, x->ne);
}

pyg_status pyg_infer_argmax(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(infer_float_rows(in));
    if (x->ne[0] < 1 || x->ne[0] > INT32_MAX)
        return pyg_op_fail(in, PYG_STATUS_shape, "the last axis must have 1 to 2^31 - 1 elements");
    return pyg_infer_result(in, PYG_DTYPE_i32, x->ndim - 1, x->ne + 1);
}

/* ---- pieces of work ---- */

static int64_t chunks_a_row(const pyg_tensor *x) {
    return x->ne[0] <= CHUNK ? 1 : x->ne[0] / CHUNK + (x->ne[0] % CHUNK != 0);
}

/* Elements first..end-1 of chunk c. */
static void chunk_at(const pyg_tensor *x, int64_t c, int64_t *first, int64_t *end) {
    *first = c * CHUNK;
    *end = x->ne[0] - *first < CHUNK ? x->ne[0] : *first + CHUNK;
}

static double sum_chunk(const pyg_tensor *x, const int64_t i[3], int64_t first, int64_t end,
                        float *buf) {
    double sum = 0.0;
    for (int64_t j = first; j < end; j += PYG_SPAN) {
        const int64_t n = end - j < PYG_SPAN ? end - j : PYG_SPAN;
        sum += pyg_k->sum(n, pyg_span_in(x, i, j, n, buf));
    }
    return sum;
}

static void store_number(const pyg_tensor *dst, const int64_t i[3], double value) {
    float number = (float)value;
    float *y = pyg_span_out(dst, i, 0, &number);
    *y = (float)value;
    pyg_span_out_end(dst, i, 0, 1, y);
}

/* Tasks over the chunks of x, then over its rows; a double for each chunk if rows have several. */
static pyg_status plan_chunks(const pyg_node_io *io, int n_phases, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    const int64_t rows = pyg_n_rows(x), chunks = chunks_a_row(x), all = rows * chunks;
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    const int64_t tasks = pyg_split(all, x->ne[0] < CHUNK ? x->ne[0] : CHUNK);
    plan->n_tasks[0] = tasks;
    if (chunks == 1) return PYG_OK;
    plan->n_phases = n_phases;
    plan->n_tasks[1] = pyg_split(rows, chunks);
    plan->n_tasks[2] = tasks;
    if (__builtin_mul_overflow((size_t)all, sizeof(double), &plan->shared_bytes))
        return pyg_fail(PYG_STATUS_shape, "a reduction of %lld pieces is too large",
                        (long long)all);
    return PYG_OK;
}

/* Phase 0 where rows have several chunks: the sum of each. */
static void sum_chunks(const pyg_task *task) {
    const pyg_tensor *x = task->io.src[0];
    double *parts = (double *)(void *)task->shared;
    const int64_t chunks = chunks_a_row(x);
    int64_t k, last;
    pyg_task_range(task, pyg_n_rows(x) * chunks, &k, &last);
    for (; k < last; k++) {
        int64_t i[3], first, end;
        pyg_row_index(x->ne, k / chunks, i);
        chunk_at(x, k % chunks, &first, &end);
        parts[k] = sum_chunk(x, i, first, end, (float *)(void *)task->scratch);
    }
}

/* ---- sum ---- */

/* Partial sums, one a task, then their sum. Each task takes a run of pieces whatever the rows. */
pyg_status pyg_plan_sum(const pyg_node_io *io, pyg_plan *plan) {
    pyg_tensor x = *io->src[0];
    pyg_collapse(&x, 1);
    plan->n_phases = 2;
    plan->n_tasks[0] = pyg_split_pieces(&x, 1);
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    plan->shared_bytes = (size_t)plan->n_tasks[0] * sizeof(double);
    return PYG_OK;
}

void pyg_run_sum(const pyg_task *task) {
    pyg_tensor x = *task->io.src[0];
    pyg_collapse(&x, 1);
    double *parts = (double *)(void *)task->shared, sum = 0.0;
    if (task->phase == 1) {
        const int64_t origin[3] = {0, 0, 0}, n = pyg_split_pieces(&x, 1);
        for (int64_t t = 0; t < n; t++) sum += parts[t];
        store_number(task->io.dst, origin, sum);
        return;
    }
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(&x), &k, &last);
    if (k < last) {
        pyg_piece p;
        pyg_piece_at(&x, k, &p);
        for (; k < last; k++, pyg_piece_next(&x, &p))
            sum += sum_chunk(&x, p.i, p.j0, p.j0 + p.n, (float *)(void *)task->scratch);
    }
    parts[task->index] = sum;
}

/* ---- sum_rows, mean ---- */

pyg_status pyg_plan_sum_rows(const pyg_node_io *io, pyg_plan *plan) {
    return plan_chunks(io, 2, plan);
}

static void run_rows(const pyg_task *task, double divisor) {
    const pyg_tensor *x = task->io.src[0];
    const int64_t chunks = chunks_a_row(x);
    if (chunks > 1 && task->phase == 0) {
        sum_chunks(task);
        return;
    }
    const double *parts = (const double *)(const void *)task->shared;
    int64_t r, last;
    pyg_task_range(task, pyg_n_rows(x), &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        double sum = 0.0;
        pyg_row_index(x->ne, r, i);
        if (chunks == 1)
            sum = sum_chunk(x, i, 0, x->ne[0], (float *)(void *)task->scratch);
        else
            for (int64_t c = 0; c < chunks; c++) sum += parts[r * chunks + c];
        store_number(task->io.dst, i, sum / divisor);
    }
}

void pyg_run_sum_rows(const pyg_task *task) { run_rows(task, 1.0); }

void pyg_run_mean(const pyg_task *task) { run_rows(task, (double)task->io.src[0]->ne[0]); }

/* ---- cumsum ---- */

/* Sums of the chunks, sums of all chunks before each, then the running sums from there on. */
pyg_status pyg_plan_cumsum(const pyg_node_io *io, pyg_plan *plan) {
    return plan_chunks(io, 3, plan);
}

static void sums_before(const pyg_task *task) {
    double *parts = (double *)(void *)task->shared;
    const int64_t chunks = chunks_a_row(task->io.src[0]);
    int64_t r, last;
    pyg_task_range(task, pyg_n_rows(task->io.src[0]), &r, &last);
    for (; r < last; r++) {
        double sum = -0.0; /* plus x is x, whatever its sign */
        for (int64_t c = r * chunks; c < (r + 1) * chunks; c++) {
            const double part = parts[c];
            parts[c] = sum;
            sum += part;
        }
    }
}

void pyg_run_cumsum(const pyg_task *task) {
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    const int64_t chunks = chunks_a_row(x);
    if (chunks > 1 && task->phase < 2) {
        task->phase == 0 ? sum_chunks(task) : sums_before(task);
        return;
    }
    const double *before = (const double *)(const void *)task->shared;
    float *buf = (float *)(void *)task->scratch;
    int64_t k, last;
    pyg_task_range(task, pyg_n_rows(x) * chunks, &k, &last);
    for (; k < last; k++) {
        int64_t i[3], j, end;
        pyg_row_index(x->ne, k / chunks, i);
        chunk_at(x, k % chunks, &j, &end);
        double sum = chunks > 1 ? before[k] : -0.0;
        for (; j < end; j += PYG_SPAN) {
            const int64_t n = end - j < PYG_SPAN ? end - j : PYG_SPAN;
            const float *from = pyg_span_in(x, i, j, n, buf);
            float *y = pyg_span_out(dst, i, j, buf);
            for (int64_t m = 0; m < n; m++) {
                sum += (double)from[m];
                y[m] = (float)sum;
            }
            pyg_span_out_end(dst, i, j, n, y);
        }
    }
}

/* ---- argmax ---- */

pyg_status pyg_plan_argmax(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    plan->n_tasks[0] = pyg_split(pyg_n_rows(x), x->ne[0]);
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    return PYG_OK;
}

static int32_t argmax_row(const pyg_tensor *x, const int64_t i[3], float *buf) {
    int64_t at = 0;
    float most = 0.0f;
    for (int64_t j = 0; j < x->ne[0]; j += PYG_SPAN) {
        const int64_t n = x->ne[0] - j < PYG_SPAN ? x->ne[0] - j : PYG_SPAN;
        const float *from = pyg_span_in(x, i, j, n, buf);
        const int64_t k = pyg_k->argmax(n, from);
        const float value = from[k];
        if (j > 0 && value <= most) continue; /* false for NaN */
        at = j + k;
        most = value;
        if (value != value) break; /* the first NaN */
    }
    return (int32_t)at;
}

void pyg_run_argmax(const pyg_task *task) {
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    int32_t *out = (int32_t *)(void *)dst->data;
    int64_t r, last;
    pyg_task_range(task, pyg_n_rows(x), &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        pyg_row_index(x->ne, r, i);
        out[r] = argmax_row(x, i, (float *)(void *)task->scratch);
    }
}
