/* Normalisations of the last axis: rms_norm, x / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019);
 * norm, (x - mean) / sqrt(variance + eps) (Ba et al. 2016); l2_norm, x / max(|x|, eps). */
#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

typedef void (*norm_fn)(int64_t n, const float *x, float eps, float *y);

pyg_status pyg_infer_norm(pyg_infer *in) {
    const pyg_norm_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 1) return pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis");
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

pyg_status pyg_plan_norm(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    plan->n_tasks[0] = pyg_split(pyg_n_rows(x), 2 * (x->ne[0] < INT32_MAX ? x->ne[0] : INT32_MAX));
    if (pyg_dense_f32_rows(x) && pyg_dense_f32_rows(io->dst)) return PYG_OK;
    if (__builtin_mul_overflow((size_t)x->ne[0], sizeof(float), &plan->scratch_bytes))
        return pyg_fail(PYG_STATUS_shape, "a row of %lld elements is too long",
                        (long long)x->ne[0]);
    return PYG_OK;
}

static void run_norm(const pyg_task *task, norm_fn fn) {
    const pyg_norm_params *params = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    float *buf = (float *)(void *)task->scratch; /* one is enough: the kernel works in place */
    const int64_t n = x->ne[0];
    int64_t r, last;
    pyg_task_range(task, n > 0 ? pyg_n_rows(x) : 0, &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        pyg_row_index(x->ne, r, i);
        const float *from = pyg_span_in(x, i, 0, n, buf);
        float *y = pyg_span_out(dst, i, 0, buf);
        fn(n, from, params->eps, y);
        pyg_span_out_end(dst, i, 0, n, y);
    }
}

void pyg_run_rms_norm(const pyg_task *task) { run_norm(task, pyg_k->rms_norm); }

void pyg_run_norm(const pyg_task *task) { run_norm(task, pyg_k->norm); }

void pyg_run_l2_norm(const pyg_task *task) { run_norm(task, pyg_k->l2_norm); }
