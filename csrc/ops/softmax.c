/* soft_max: softmax(x * scale + slope * mask) over the last axis, with ALiBi's slopes (Press et al.
 * 2022) and attention sinks (Xiao et al. 2024); diag_mask_inf: the causal mask as an op. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

static pyg_status check_mask(const pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t, *mask = &in->src[1]->t;
    if (mask->dtype != PYG_DTYPE_f32 && mask->dtype != PYG_DTYPE_f16)
        return pyg_op_fail(in, PYG_STATUS_dtype, "mask must be f32 or f16");
    bool fits = mask->ndim <= x->ndim;
    for (int a = 0; a < mask->ndim && fits; a++) fits = mask->ne[a] == 1 || mask->ne[a] == x->ne[a];
    return fits ? PYG_OK : pyg_op_fail(in, PYG_STATUS_shape, "mask does not broadcast to x");
}

/* An extra score for each head (axis 2), which has no column. */
static pyg_status check_sinks(const pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t, *sinks = &in->src[2]->t;
    if (sinks->dtype != PYG_DTYPE_f32)
        return pyg_op_fail(in, PYG_STATUS_dtype, "sinks must be f32");
    if (x->ndim < 3 || sinks->ndim != 1 || sinks->ne[0] != x->ne[2])
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "sinks must be (H,), a number for each head of x (..., H, T, C)");
    return PYG_OK;
}

pyg_status pyg_infer_soft_max(pyg_infer *in) {
    const pyg_soft_max_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 1) return pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis");
    if (in->src[1] != NULL) PYG_TRY(check_mask(in));
    if (in->src[2] != NULL) PYG_TRY(check_sinks(in));
    if (p->max_bias > 0.0f && (in->src[1] == NULL || x->ndim < 3))
        return pyg_op_fail(in, PYG_STATUS_param,
                           "max_bias needs a mask to multiply and heads: x (..., H, T, C)");
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

/* Scratch: a row of x (and of the result), then a row of the mask. */
pyg_status pyg_plan_soft_max(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    plan->n_tasks[0] = pyg_split(pyg_n_rows(x), 8 * (x->ne[0] < INT32_MAX ? x->ne[0] : INT32_MAX));
    if (__builtin_mul_overflow((size_t)x->ne[0], 2 * sizeof(float), &plan->scratch_bytes))
        return pyg_fail(PYG_STATUS_shape, "a row of %lld elements is too long",
                        (long long)x->ne[0]);
    return PYG_OK;
}

/* The slope of head h of n: of the powers of two below n a geometric series that ends at
 * 2^-max_bias, of the heads after those every second member of the series for twice as many.
 * Never 0, so that -inf in the mask stays what it is. */
static float alibi_slope(double max_bias, int64_t h, int64_t n) {
    const int64_t whole = (int64_t)1 << (63 - __builtin_clzll((uint64_t)n));
    const double step = max_bias / (double)whole;
    const double power =
        h < whole ? step * (double)(h + 1) : step / 2 * (double)(2 * (h - whole) + 1);
    const float slope = (float)exp2(-power);
    return slope > FLT_MIN ? slope : FLT_MIN;
}

/* What changes from head to head. */
typedef struct head_terms {
    int64_t head; /* -1: none yet */
    float slope, sink;
} head_terms;

static void enter_head(const pyg_task *task, int64_t head, head_terms *t) {
    const pyg_soft_max_params *p = task->io.params;
    const pyg_tensor *sinks = task->io.src[2];
    if (t->head == head) return;
    t->head = head;
    if (p->max_bias > 0.0f) t->slope = alibi_slope(p->max_bias, head, task->io.src[0]->ne[2]);
    if (sinks != NULL) memcpy(&t->sink, sinks->data + (size_t)head * sinks->nb[0], sizeof t->sink);
}

/* A row of the mask times the slope, NULL when there is no mask. */
static const float *mask_row(const pyg_task *task, const int64_t i[3], float slope, float *buf) {
    const int64_t n = task->io.src[0]->ne[0];
    if (task->io.src[1] == NULL) return NULL;
    const float *m = pyg_span_in(task->io.src[1], i, 0, n, buf);
    if (slope == 1.0f) return m;
    pyg_k->scale(n, m, slope, 0.0f, buf);
    return buf;
}

void pyg_run_soft_max(const pyg_task *task) {
    const pyg_soft_max_params *params = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    const int64_t n = x->ne[0];
    float *buf = (float *)(void *)task->scratch;
    head_terms terms = {.head = -1, .slope = 1.0f, .sink = -INFINITY};
    int64_t r, last;
    pyg_task_range(task, n > 0 ? pyg_n_rows(x) : 0, &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        pyg_row_index(x->ne, r, i);
        enter_head(task, i[1], &terms);
        const float *from = pyg_span_in(x, i, 0, n, buf);
        const float *m = mask_row(task, i, terms.slope, buf + n);
        float *y = pyg_span_out(dst, i, 0, buf);
        pyg_k->soft_max(n, from, params->scale, m, terms.sink, y);
        pyg_span_out_end(dst, i, 0, n, y);
    }
}

/* ---- diag_mask_inf ---- */

static bool holds_infinity(pyg_dtype dtype) {
    return (pyg_dtype_row(dtype)->flags & (PYG_DT_BLOCK | PYG_DT_SCALED)) == 0;
}

pyg_status pyg_infer_diag_mask_inf(pyg_infer *in) {
    const pyg_diag_mask_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 2) return pyg_op_fail(in, PYG_STATUS_shape, "x must be (..., T, C)");
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, p->dtype, 0, 0, &dtype));
    if (p->dtype < 0 && !holds_infinity(dtype)) dtype = PYG_DTYPE_f32;
    if (!holds_infinity(dtype))
        return pyg_op_fail(in, PYG_STATUS_dtype, "%s has no infinity", pyg_dtype_row(dtype)->name);
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

pyg_status pyg_plan_diag_mask_inf(const pyg_node_io *io, pyg_plan *plan) {
    plan->n_tasks[0] = pyg_split_pieces(io->dst, 1);
    plan->scratch_bytes = 2 * PYG_SPAN * sizeof(float);
    return PYG_OK;
}

void pyg_run_diag_mask_inf(const pyg_task *task) {
    const pyg_diag_mask_params *params = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    float *buf = (float *)(void *)task->scratch;
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(dst), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(dst, k, &p);
    for (; k < last; k++, pyg_piece_next(dst, &p)) {
        const float *from = pyg_span_in(x, p.i, p.j0, p.n, buf);
        float *y = pyg_span_out(dst, p.i, p.j0, buf + PYG_SPAN);
        int64_t open = params->n_past + p.i[0] + 1 - p.j0; /* columns that stay */
        open = open < 0 ? 0 : open > p.n ? p.n : open;
        if (y != from) memcpy(y, from, (size_t)open * sizeof(float));
        for (int64_t j = open; j < p.n; j++) y[j] = -INFINITY;
        pyg_span_out_end(dst, p.i, p.j0, p.n, y);
    }
}
