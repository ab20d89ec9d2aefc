/* acc and set: writes into a region of a tensor, which starts anywhere and may skip elements. */
#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

/* ---- the region ---- */

/* The rules for one axis; messages name the axis as numpy counts it. */
static pyg_status check_axis(const pyg_infer *in, int a) {
    const pyg_region_params *p = in->params;
    const pyg_tensor *dst = &in->src[0]->t;
    const int axis = dst->ndim - 1 - a;
    const int64_t start = p->start[a], step = p->step[a], size = in->src[1]->t.ne[a];
    int64_t last;
    if (step < 1)
        return pyg_op_fail(in, PYG_STATUS_shape, "axis %d: the step must be at least 1, not %lld",
                           axis, (long long)step);
    if (start < 0 || start > dst->ne[a] ||
        (size > 0 && (__builtin_mul_overflow(size - 1, step, &last) || last >= dst->ne[a] - start)))
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "axis %d: x from %lld on in steps of %lld leaves dst", axis,
                           (long long)start, (long long)step);
    const int64_t block = a == 0 ? pyg_dtype_row(dst->dtype)->block : 1;
    if (start % block != 0 || size % block != 0 || (block > 1 && step != 1))
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "axis %d: %s is written only in blocks of %lld elements, step 1", axis,
                           pyg_dtype_row(dst->dtype)->name, (long long)block);
    return PYG_OK;
}

/* The result is a view of all of dst. */
static pyg_status infer_region(pyg_infer *in) {
    const pyg_tensor *dst = &in->src[0]->t, *x = &in->src[1]->t;
    PYG_TRY(pyg_need_writable(in, 0));
    if (x->ndim != dst->ndim)
        return pyg_op_fail(in, PYG_STATUS_shape, "x must have as many axes as dst");
    for (int a = 0; a < PYG_MAX_DIMS; a++) PYG_TRY(check_axis(in, a));
    in->out = *dst;
    in->view_of = 0;
    in->view_off = 0;
    return PYG_OK;
}

/* What x is written to: a part of dst in the shape of x. At plan time there is no memory yet. */
static pyg_tensor region_of(const pyg_node_io *io) {
    const pyg_region_params *p = io->params;
    const pyg_tensor *x = io->src[1];
    pyg_tensor t = *io->dst;
    for (int a = 0; a < PYG_MAX_DIMS; a++) {
        const int64_t block = a == 0 ? pyg_dtype_row(t.dtype)->block : 1;
        if (t.data != NULL && pyg_n_elements(x) > 0)
            t.data += (size_t)(p->start[a] / block) * t.nb[a];
        t.ne[a] = x->ne[a];
        if (x->ne[a] > 1) t.nb[a] *= (size_t)p->step[a];
    }
    return t;
}

/* ---- acc ---- */

pyg_status pyg_infer_acc(pyg_infer *in) {
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_float(in, 1));
    PYG_TRY(pyg_need_encoder(in, PYG_DTYPE_f32, in->src[0]->t.dtype));
    return infer_region(in);
}

pyg_status pyg_plan_acc(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor region = region_of(io);
    const pyg_node_io sum = {&region, {&region, io->src[1]}, NULL};
    plan->bytes = 2 * pyg_moved_bytes(&region) + pyg_moved_bytes(io->src[1]);
    plan->flops = (double)pyg_n_elements(&region);
    return pyg_plan_binary(&sum, plan);
}

void pyg_run_acc(const pyg_task *task) {
    const pyg_tensor region = region_of(&task->io);
    pyg_task sum = *task;
    sum.io = (pyg_node_io){&region, {&region, task->io.src[1]}, NULL};
    pyg_run_add(&sum);
}

/* ---- set ---- */

pyg_status pyg_infer_set(pyg_infer *in) {
    PYG_TRY(pyg_check_cast(in, in->src[1]->t.dtype, in->src[0]->t.dtype));
    return infer_region(in);
}

pyg_status pyg_plan_set(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_tensor region = region_of(io);
    const pyg_node_io copy = {&region, {io->src[1]}, NULL};
    return pyg_plan_copy(&copy, plan);
}

void pyg_run_set(const pyg_task *task) {
    const pyg_tensor region = region_of(&task->io);
    pyg_task copy = *task;
    copy.io = (pyg_node_io){&region, {task->io.src[1]}, NULL};
    pyg_run_copy(&copy);
}
