/* soft_max: softmax(x * scale + mask) over the last axis. */
#include <math.h>

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

pyg_status pyg_infer_soft_max(pyg_infer *in) {
    const pyg_soft_max_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 1) return pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis");
    if (in->src[1] != NULL) PYG_TRY(check_mask(in));
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

/* Scratch: a row of x (and of the result), then a row of the mask. */
pyg_status pyg_plan_soft_max(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    plan->n_tasks[0] = pyg_split(pyg_n_rows(x), 8 * (x->ne[0] < INT32_MAX ? x->ne[0] : INT32_MAX));
    if (__builtin_mul_overflow((size_t)x->ne[0], 2 * sizeof(float), &plan->scratch_bytes))
        return pyg_fail(PYG_STATUS_shape, "soft_max: a row of %lld elements is too long",
                        (long long)x->ne[0]);
    return PYG_OK;
}

void pyg_run_soft_max(const pyg_task *task) {
    const pyg_soft_max_params *params = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0], *mask = task->io.src[1];
    const int64_t n = x->ne[0];
    float *buf = (float *)(void *)task->scratch;
    int64_t r, last;
    pyg_task_range(task, n > 0 ? pyg_n_rows(x) : 0, &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        pyg_row_index(x->ne, r, i);
        const float *from = pyg_span_in(x, i, 0, n, buf);
        const float *m = mask == NULL ? NULL : pyg_span_in(mask, i, 0, n, buf + n);
        float *y = pyg_span_out(dst, i, 0, buf);
        pyg_k->soft_max(n, from, params->scale, m, -INFINITY, y);
        pyg_span_out_end(dst, i, 0, n, y);
    }
}
