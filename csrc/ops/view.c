/* Views: slices, reshapes and axis permutations. Nothing runs; infer does the stride arithmetic. */
#include "ops/ops.h"
#include "ops/rules.h"

/* The rules for one axis of a slice; messages name the axis as numpy counts it. */
static pyg_status check_slice(const pyg_infer *in, int a) {
    const pyg_view_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    const int axis = x->ndim - 1 - a;
    const int64_t start = p->start[a], step = p->step[a], size = p->size[a], ne = x->ne[a];
    if (step < 1)
        return pyg_op_fail(in, PYG_STATUS_shape, "axis %d: the step must be at least 1, not %lld",
                           axis, (long long)step);
    if (start < 0 || start > ne || size < 0)
        return pyg_op_fail(in, PYG_STATUS_shape, "axis %d: start %lld, size %lld is outside", axis,
                           (long long)start, (long long)size);
    int64_t last;
    if (size > 0 && (__builtin_mul_overflow(size - 1, step, &last) || last >= ne - start))
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "axis %d: start %lld, step %lld, size %lld runs past the end", axis,
                           (long long)start, (long long)step, (long long)size);
    const int64_t block = a == 0 ? pyg_dtype_row(x->dtype)->block : 1;
    if (start % block != 0 || size % block != 0 || (block > 1 && step != 1))
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "axis %d: %s is cut only between blocks of %lld elements, step 1", axis,
                           pyg_dtype_row(x->dtype)->name, (long long)block);
    if (p->keep[a] == 0 && size != 1)
        return pyg_op_fail(in, PYG_STATUS_shape, "axis %d: only an axis of size 1 can be dropped",
                           axis);
    return PYG_OK;
}

pyg_status pyg_infer_view(pyg_infer *in) {
    const pyg_view_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    if (p->ndim != x->ndim)
        return pyg_op_fail(in, PYG_STATUS_shape, "the slice has %lld axes", (long long)p->ndim);
    int64_t ne[PYG_MAX_DIMS] = {1, 1, 1, 1};
    size_t nb[PYG_MAX_DIMS], off = 0;
    int n = 0;
    for (int a = 0; a < x->ndim; a++) {
        PYG_TRY(check_slice(in, a));
        const int64_t block = a == 0 ? pyg_dtype_row(x->dtype)->block : 1;
        off += (size_t)(p->start[a] / block) * x->nb[a];
        if (p->keep[a] == 0) continue;
        ne[n] = p->size[a];
        nb[n++] = p->size[a] > 1 ? x->nb[a] * (size_t)p->step[a] : x->nb[a];
    }
    PYG_TRY(pyg_infer_result(in, x->dtype, n, ne));
    for (int i = 0; i < n; i++) in->out.nb[i] = nb[i];
    in->view_of = 0;
    /* an empty view may start past the end; it touches nothing, so it starts at 0 */
    in->view_off = pyg_n_elements(&in->out) > 0 ? off : 0;
    return PYG_OK;
}

/* When the shapes differ only in axes of length 1, the other strides carry over. */
static bool carry_strides(const pyg_tensor *x, pyg_tensor *out) {
    int from = 0;
    for (int a = 0; a < out->ndim; a++) {
        if (out->ne[a] == 1) continue;
        while (from < x->ndim && x->ne[from] == 1) from++;
        if (from == x->ndim || x->ne[from] != out->ne[a]) return false;
        out->nb[a] = x->nb[from++];
    }
    return true;
}

pyg_status pyg_infer_reshape(pyg_infer *in) {
    const pyg_reshape_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_infer_result(in, x->dtype, (int)p->ndim, p->size));
    if (pyg_n_elements(&in->out) != pyg_n_elements(x))
        return pyg_op_fail(in, PYG_STATUS_shape, "%lld elements do not fill a shape of %lld",
                           (long long)pyg_n_elements(x), (long long)pyg_n_elements(&in->out));
    if (!pyg_contiguous(x) && !carry_strides(x, &in->out))
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "x is not contiguous: make a dense copy with cont first");
    in->view_of = 0;
    in->view_off = 0;
    return PYG_OK;
}

/* Axis i of the result is axis axes[i] of operand 0. */
static pyg_status permuted(pyg_infer *in, const int64_t *axes) {
    const pyg_tensor *x = &in->src[0]->t;
    int64_t ne[PYG_MAX_DIMS] = {1, 1, 1, 1};
    for (int i = 0; i < x->ndim; i++) ne[i] = x->ne[axes[i]];
    if (x->ndim > 0 && axes[0] != 0 && pyg_has_flag(x, PYG_DT_BLOCK))
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "the last axis of %s, which holds its blocks, stays",
                           pyg_dtype_row(x->dtype)->name);
    PYG_TRY(pyg_infer_result(in, x->dtype, x->ndim, ne));
    for (int i = 0; i < x->ndim; i++) in->out.nb[i] = x->nb[axes[i]];
    in->view_of = 0;
    in->view_off = 0;
    return PYG_OK;
}

pyg_status pyg_infer_permute(pyg_infer *in) {
    const pyg_permute_params *p = in->params;
    const int ndim = in->src[0]->t.ndim;
    unsigned seen = 0;
    for (int i = 0; i < ndim; i++) {
        if (p->axes[i] < 0 || p->axes[i] >= ndim || (seen & (1u << p->axes[i])) != 0)
            return pyg_op_fail(in, PYG_STATUS_shape, "axes must name each of 0..%d once", ndim - 1);
        seen |= 1u << p->axes[i];
    }
    return permuted(in, p->axes);
}

pyg_status pyg_infer_transpose(pyg_infer *in) {
    static const int64_t swapped[PYG_MAX_DIMS] = {1, 0, 2, 3};
    if (in->src[0]->t.ndim < 2)
        return pyg_op_fail(in, PYG_STATUS_shape, "x needs two axes to swap");
    return permuted(in, swapped);
}
