/* Normalisations of the last axis: rms_norm, x / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019);
 * norm, (x - mean) / sqrt(variance + eps) (Ba et al. 2016); l2_norm, x / max(|x|, eps). */
#include <math.h>

#include "kernels/kernels.h"
#include "ops/ints.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

pyg_status pyg_infer_norm(pyg_infer *in) {
    const pyg_norm_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 1) return pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis");
    pyg_dtype dtype;
    PYG_TRY(pyg_f32_unless(in, p->dtype, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

static int64_t n_tasks(const pyg_tensor *x) {
    return pyg_split(pyg_n_rows(x), 2 * (x->ne[0] < INT32_MAX ? x->ne[0] : INT32_MAX));
}

/* ---- norm ---- */

/* The kernel takes a row whole. */
pyg_status pyg_plan_norm(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor *x = io->src[0];
    plan->n_tasks[0] = n_tasks(x);
    if (pyg_dense_f32_rows(x) && pyg_dense_f32_rows(io->dst)) return PYG_OK;
    if (__builtin_mul_overflow((size_t)x->ne[0], sizeof(float), &plan->scratch_bytes))
        return pyg_fail(PYG_STATUS_shape, "a row of %lld elements is too long",
                        (long long)x->ne[0]);
    return PYG_OK;
}

void pyg_run_norm(const pyg_task *task) {
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
        pyg_k->norm(n, from, params->eps, y);
        pyg_span_out_end(dst, i, 0, n, y);
    }
}

/* ---- rms_norm and l2_norm: a row times a factor that its sum of squares gives ---- */

typedef double (*factor_fn)(double sum_sqr, int64_t n, double eps);
typedef double (*sum_codes_fn)(int64_t n, const void *x);
typedef void (*scale_codes_fn)(int64_t n, const void *x, float s, float bias, void *y);

pyg_status pyg_plan_rms_norm(const pyg_node_io *io, pyg_plan *plan) {
    plan->n_tasks[0] = n_tasks(io->src[0]);
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    return PYG_OK;
}

static double row_sum_sqr(const pyg_tensor *x, const int64_t i[3], sum_codes_fn direct,
                          float *buf) {
    double sum = 0.0;
    for (int64_t j = 0; j < x->ne[0]; j += PYG_SPAN) {
        const int64_t n = pyg_min64(x->ne[0] - j, PYG_SPAN);
        sum += direct != NULL ? direct(n, pyg_span_at(x, i, j))
                              : pyg_k->sum_sqr(n, pyg_span_in(x, i, j, n, buf));
    }
    return sum;
}

/* t[0] = t[1] * s. A direct kernel takes s in F32: of values of 16 bits no product that is
 * not 0 or infinite needs more. */
static void scale_row(const pyg_tensor t[2], const int64_t i[3], double s, scale_codes_fn direct,
                      float *buf) {
    const pyg_tensor *y = &t[0], *x = &t[1];
    for (int64_t j = 0; j < x->ne[0]; j += PYG_SPAN) {
        const int64_t n = pyg_min64(x->ne[0] - j, PYG_SPAN);
        if (direct != NULL) {
            direct(n, pyg_span_at(x, i, j), (float)s, 0.0f, pyg_span_at(y, i, j));
            continue;
        }
        const float *from = pyg_span_in(x, i, j, n, buf);
        float *to = pyg_span_out(y, i, j, buf);
        pyg_k->scale_wide(n, from, s, to);
        pyg_span_out_end(y, i, j, n, to);
    }
}

static void run_factor(const pyg_task *task, factor_fn factor) {
    const pyg_norm_params *params = task->io.params;
    const pyg_tensor t[2] = {*task->io.dst, *task->io.src[0]};
    const pyg_tensor *x = &t[1];
    const sum_codes_fn sum = (sum_codes_fn)pyg_direct_for(PYG_SLOT(sum_sqr), x, 1);
    const scale_codes_fn scale = (scale_codes_fn)pyg_direct_for(PYG_SLOT(scale), t, 2);
    float *buf = (float *)(void *)task->scratch;
    int64_t r, last;
    pyg_task_range(task, x->ne[0] > 0 ? pyg_n_rows(x) : 0, &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        pyg_row_index(x->ne, r, i);
        const double s = factor(row_sum_sqr(x, i, sum, buf), x->ne[0], (double)params->eps);
        scale_row(t, i, s, scale, buf);
    }
}

static double rms_factor(double sum_sqr, int64_t n, double eps) {
    return 1.0 / sqrt(sum_sqr / (double)n + eps);
}

/* The comparison keeps a NaN norm. */
static double l2_factor(double sum_sqr, int64_t n, double eps) {
    (void)n;
    const double norm = sqrt(sum_sqr);
    return 1.0 / (norm < eps ? eps : norm);
}

void pyg_run_rms_norm(const pyg_task *task) { run_factor(task, rms_factor); }

void pyg_run_l2_norm(const pyg_task *task) { run_factor(task, l2_factor); }
