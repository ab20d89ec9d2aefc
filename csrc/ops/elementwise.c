/* Elementwise ops of two operands: add sub mul div with numpy broadcasting, add1, gated units.
 *
 * All work in F32 on pieces of a row; the result is rounded once, when its span is stored. Where
 * the kernel table has a direct kernel for the dtype of all three, it takes them as they lie. */
#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

typedef void (*binary_fn)(int64_t n, const float *a, const float *b, float *y);
typedef void (*codes_fn)(int64_t n, const void *a, const void *b, void *y);

/* ---- shapes ---- */

pyg_status pyg_infer_binary(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *a = &in->src[0]->t, *b = &in->src[1]->t;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    const int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t ne[PYG_MAX_DIMS] = {1, 1, 1, 1};
    for (int i = 0; i < ndim; i++) {
        if (a->ne[i] != b->ne[i] && a->ne[i] != 1 && b->ne[i] != 1)
            return pyg_op_fail(in, PYG_STATUS_shape, "shapes do not broadcast");
        ne[i] = a->ne[i] == 1 ? b->ne[i] : a->ne[i];
    }
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, p->dtype, 0, 1, &dtype));
    return pyg_infer_result(in, dtype, ndim, ne);
}

pyg_status pyg_infer_glu(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *gate = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    int64_t ne[PYG_MAX_DIMS] = {gate->ne[0], gate->ne[1], gate->ne[2], gate->ne[3]};
    if (in->src[1] != NULL) {
        PYG_TRY(pyg_need_float(in, 1));
        if (!pyg_same_shape(gate, &in->src[1]->t))
            return pyg_op_fail(in, PYG_STATUS_shape, "gate and up must have one shape");
    } else {
        const int64_t pair = 2 * (int64_t)pyg_dtype_row(gate->dtype)->block;
        if (gate->ndim < 1 || gate->ne[0] % pair != 0)
            return pyg_op_fail(in, PYG_STATUS_shape,
                               "without up, the last axis must be a multiple of %lld",
                               (long long)pair);
        ne[0] /= 2;
    }
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, p->dtype, 0, 1, &dtype));
    return pyg_infer_result(in, dtype, gate->ndim, ne);
}

/* a keeps its shape, whatever axes of length 1 b has. */
pyg_status pyg_infer_add1(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *a = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    if (pyg_n_elements(&in->src[1]->t) != 1)
        return pyg_op_fail(in, PYG_STATUS_shape, "b must have one element");
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, p->dtype, 0, 1, &dtype));
    return pyg_infer_result(in, dtype, a->ndim, a->ne);
}

/* ---- binary ---- */

/* t[0] = dst, then two operands that broadcast to it. `cost`: operations an element. */
static pyg_status plan_pieces(pyg_tensor *t, int count, int64_t cost, pyg_plan *plan) {
    pyg_collapse(t, count);
    plan->n_tasks[0] = pyg_split_pieces(&t[0], cost);
    plan->scratch_bytes = (size_t)count * PYG_SPAN * sizeof(float);
    return PYG_OK;
}

static void run_pieces(const pyg_task *task, pyg_tensor t[3], binary_fn fn, size_t slot) {
    pyg_collapse(t, 3);
    const codes_fn direct = (codes_fn)pyg_direct_for(slot, t, 3);
    float *buf = (float *)(void *)task->scratch;
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(&t[0]), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(&t[0], k, &p);
    for (; k < last; k++, pyg_piece_next(&t[0], &p)) {
        if (direct != NULL) {
            direct(p.n, pyg_span_at(&t[1], p.i, p.j0), pyg_span_at(&t[2], p.i, p.j0),
                   pyg_span_at(&t[0], p.i, p.j0));
            continue;
        }
        const float *a = pyg_span_in(&t[1], p.i, p.j0, p.n, buf);
        const float *b = pyg_span_in(&t[2], p.i, p.j0, p.n, buf + PYG_SPAN);
        float *y = pyg_span_out(&t[0], p.i, p.j0, buf + 2 * PYG_SPAN);
        fn(p.n, a, b, y);
        pyg_span_out_end(&t[0], p.i, p.j0, p.n, y);
    }
}

pyg_status pyg_plan_binary(const pyg_node_io *io, pyg_plan *plan) {
    pyg_tensor t[3] = {*io->dst, *io->src[0], *io->src[1]};
    return plan_pieces(t, 3, 1, plan);
}

static void run_binary(const pyg_task *task, binary_fn fn, size_t slot) {
    pyg_tensor t[3] = {*task->io.dst, *task->io.src[0], *task->io.src[1]};
    run_pieces(task, t, fn, slot);
}

void pyg_run_add(const pyg_task *task) { run_binary(task, pyg_k->add, PYG_SLOT(add)); }

void pyg_run_sub(const pyg_task *task) { run_binary(task, pyg_k->sub, PYG_SLOT(sub)); }

void pyg_run_mul(const pyg_task *task) { run_binary(task, pyg_k->mul, PYG_SLOT(mul)); }

void pyg_run_div(const pyg_task *task) { run_binary(task, pyg_k->div, PYG_SLOT(div)); }

/* ---- gated units ---- */

pyg_status pyg_plan_glu(const pyg_node_io *io, pyg_plan *plan) {
    pyg_tensor t[3] = {*io->dst, *io->dst, *io->dst}; /* what the operands hold of dst's shape */
    return plan_pieces(t, 3, 6, plan);
}

static void run_glu(const pyg_task *task, binary_fn fn, size_t slot) {
    const pyg_tensor *x = task->io.src[0];
    pyg_tensor t[3] = {*task->io.dst, *x, *x};
    if (task->io.src[1] != NULL) {
        t[2] = *task->io.src[1];
    } else {
        const int64_t half = x->ne[0] / 2;
        t[1].ne[0] = t[2].ne[0] = half;
        t[2].data += (size_t)(half / pyg_dtype_row(x->dtype)->block) * x->nb[0];
    }
    run_pieces(task, t, fn, slot);
}

void pyg_run_swiglu(const pyg_task *task) { run_glu(task, pyg_k->swiglu, PYG_SLOT(swiglu)); }
void pyg_run_geglu(const pyg_task *task) { run_glu(task, pyg_k->geglu, PYG_SLOT(geglu)); }
void pyg_run_geglu_erf(const pyg_task *task) {
    run_glu(task, pyg_k->geglu_erf, PYG_SLOT(geglu_erf));
}
void pyg_run_geglu_quick(const pyg_task *task) {
    run_glu(task, pyg_k->geglu_quick, PYG_SLOT(geglu_quick));
}
void pyg_run_reglu(const pyg_task *task) { run_glu(task, pyg_k->reglu, PYG_SLOT(reglu)); }
