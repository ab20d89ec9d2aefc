/* Ops of one operand, element by element: scale, clamp, activations, elementary functions.
 *
 * All work in F32 on pieces of a row; the result is rounded once, when its span is stored. */
#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

/* ---- shapes ---- */

static pyg_status infer_like_x(pyg_infer *in, int64_t asked) {
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, asked, 0, 0, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

pyg_status pyg_infer_unary(pyg_infer *in) {
    return infer_like_x(in, ((const pyg_result_params *)in->params)->dtype);
}

pyg_status pyg_infer_scale(pyg_infer *in) {
    return infer_like_x(in, ((const pyg_scale_params *)in->params)->dtype);
}

pyg_status pyg_infer_clamp(pyg_infer *in) {
    const pyg_clamp_params *p = in->params;
    if (p->min > p->max)
        return pyg_op_fail(in, PYG_STATUS_param, "min %g is above max %g", (double)p->min,
                           (double)p->max);
    return infer_like_x(in, p->dtype);
}

pyg_status pyg_infer_leaky_relu(pyg_infer *in) {
    return infer_like_x(in, ((const pyg_leaky_relu_params *)in->params)->dtype);
}

/* ---- the loop ---- */

/* A slot as it is, or a function that passes it what the task's parameters say. y may be x. */
typedef void (*slot_fn)(int64_t n, const float *x, float *y);
typedef void (*span_fn)(const void *params, int64_t n, const float *x, float *y);

pyg_status pyg_plan_unary(const pyg_node_io *io, pyg_plan *plan) {
    pyg_tensor t[2] = {*io->dst, *io->src[0]};
    pyg_collapse(t, 2);
    plan->n_tasks[0] = pyg_split_pieces(&t[0], 4);
    plan->scratch_bytes = 2 * PYG_SPAN * sizeof(float);
    return PYG_OK;
}

static void run_spans(const pyg_task *task, slot_fn slot, span_fn span) {
    pyg_tensor t[2] = {*task->io.dst, *task->io.src[0]};
    pyg_collapse(t, 2);
    float *buf = (float *)(void *)task->scratch;
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(&t[0]), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(&t[0], k, &p);
    for (; k < last; k++, pyg_piece_next(&t[0], &p)) {
        const float *x = pyg_span_in(&t[1], p.i, p.j0, p.n, buf);
        float *y = pyg_span_out(&t[0], p.i, p.j0, buf + PYG_SPAN);
        if (slot != NULL)
            slot(p.n, x, y);
        else
            span(task->io.params, p.n, x, y);
        pyg_span_out_end(&t[0], p.i, p.j0, p.n, y);
    }
}

static void run_slot(const pyg_task *task, slot_fn slot) { run_spans(task, slot, NULL); }

/* ---- ops with parameters ---- */

static void scale_span(const void *params, int64_t n, const float *x, float *y) {
    const pyg_scale_params *p = params;
    pyg_k->scale(n, x, p->s, p->bias, y);
}

typedef void (*scale_codes_fn)(int64_t n, const void *x, float s, float bias, void *y);

/* The pieces of t[0] and t[1], as pyg_collapse left them. */
static void scale_codes(const pyg_task *task, const pyg_tensor t[2], scale_codes_fn fn) {
    const pyg_scale_params *params = task->io.params;
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(&t[0]), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(&t[0], k, &p);
    for (; k < last; k++, pyg_piece_next(&t[0], &p))
        fn(p.n, pyg_span_at(&t[1], p.i, p.j0), params->s, params->bias,
           pyg_span_at(&t[0], p.i, p.j0));
}

static void clamp_span(const void *params, int64_t n, const float *x, float *y) {
    const pyg_clamp_params *p = params;
    pyg_k->clamp(n, x, p->min, p->max, y);
}

static void leaky_relu_span(const void *params, int64_t n, const float *x, float *y) {
    const pyg_leaky_relu_params *p = params;
    pyg_k->leaky_relu(n, x, p->slope, y);
}

/* min(max(x + 3, 0), 6) / 6: near -3 the sum is exact. */
static void hardsigmoid_span(const void *params, int64_t n, const float *x, float *y) {
    (void)params;
    pyg_k->scale(n, x, 1.0f, 3.0f, y);
    pyg_k->clamp(n, y, 0.0f, 6.0f, y);
    pyg_k->scale(n, y, 1.0f / 6.0f, 0.0f, y);
}

void pyg_run_hardsigmoid(const pyg_task *task) { run_spans(task, NULL, hardsigmoid_span); }

void pyg_run_scale(const pyg_task *task) {
    pyg_tensor t[2] = {*task->io.dst, *task->io.src[0]};
    pyg_collapse(t, 2);
    const scale_codes_fn direct = (scale_codes_fn)pyg_direct_for(PYG_SLOT(scale), t, 2);
    if (direct != NULL)
        scale_codes(task, t, direct);
    else
        run_spans(task, NULL, scale_span);
}

void pyg_run_clamp(const pyg_task *task) { run_spans(task, NULL, clamp_span); }
void pyg_run_leaky_relu(const pyg_task *task) { run_spans(task, NULL, leaky_relu_span); }

/* ---- ops that are a slot ---- */

void pyg_run_sqr(const pyg_task *task) { run_slot(task, pyg_k->sqr); }
void pyg_run_sqrt(const pyg_task *task) { run_slot(task, pyg_k->sqrt); }
void pyg_run_neg(const pyg_task *task) { run_slot(task, pyg_k->neg); }
void pyg_run_abs(const pyg_task *task) { run_slot(task, pyg_k->abs); }
void pyg_run_relu(const pyg_task *task) { run_slot(task, pyg_k->relu); }
void pyg_run_step(const pyg_task *task) { run_slot(task, pyg_k->step); }
void pyg_run_exp(const pyg_task *task) { run_slot(task, pyg_k->exp); }
void pyg_run_log(const pyg_task *task) { run_slot(task, pyg_k->log); }
void pyg_run_sin(const pyg_task *task) { run_slot(task, pyg_k->sin); }
void pyg_run_cos(const pyg_task *task) { run_slot(task, pyg_k->cos); }
void pyg_run_tanh(const pyg_task *task) { run_slot(task, pyg_k->tanh); }
void pyg_run_sigmoid(const pyg_task *task) { run_slot(task, pyg_k->sigmoid); }
void pyg_run_softplus(const pyg_task *task) { run_slot(task, pyg_k->softplus); }
void pyg_run_silu(const pyg_task *task) { run_slot(task, pyg_k->silu); }
void pyg_run_gelu(const pyg_task *task) { run_slot(task, pyg_k->gelu); }
void pyg_run_gelu_erf(const pyg_task *task) { run_slot(task, pyg_k->gelu_erf); }
void pyg_run_gelu_quick(const pyg_task *task) { run_slot(task, pyg_k->gelu_quick); }
