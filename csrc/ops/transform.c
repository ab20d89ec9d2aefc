/* fwht: the Walsh-Hadamard transform of the last axis, y[i] = s * sum over j of
 * (-1)^popcount(i & j) * x[j], with s = 1/sqrt(n) or 1: natural order (Fino & Algazi 1976). */
#include <math.h>

#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

pyg_status pyg_infer_fwht(pyg_infer *in) {
    const pyg_fwht_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 1 || x->ne[0] < 1 || (x->ne[0] & (x->ne[0] - 1)) != 0)
        return pyg_op_fail(in, PYG_STATUS_shape, "the last axis must be a power of two long");
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

/* Scratch: a row, where it cannot be transformed in the result itself. */
pyg_status pyg_plan_fwht(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    const int64_t rounds = 63 - __builtin_clzll((uint64_t)x->ne[0]);
    int64_t work;
    if (__builtin_mul_overflow(x->ne[0], rounds + 1, &work)) work = INT64_MAX;
    plan->n_tasks[0] = pyg_split(pyg_n_rows(x), work);
    if (pyg_dense_f32_rows(x) && pyg_dense_f32_rows(io->dst)) return PYG_OK;
    if (__builtin_mul_overflow((size_t)x->ne[0], sizeof(float), &plan->scratch_bytes))
        return pyg_fail(PYG_STATUS_shape, "a row of %lld elements is too long",
                        (long long)x->ne[0]);
    return PYG_OK;
}

void pyg_run_fwht(const pyg_task *task) {
    const pyg_fwht_params *p = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    float *buf = (float *)(void *)task->scratch;
    const int64_t n = x->ne[0];
    const float scale = p->normalized ? (float)(1.0 / sqrt((double)n)) : 1.0f;
    int64_t r, last;
    pyg_task_range(task, pyg_n_rows(x), &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        pyg_row_index(x->ne, r, i);
        const float *from = pyg_span_in(x, i, 0, n, buf);
        float *y = pyg_span_out(dst, i, 0, buf);
        pyg_k->fwht(n, from, scale, y);
        pyg_span_out_end(dst, i, 0, n, y);
    }
}
