/* cont, cast, cpy: copies between any two layouts, and between dtypes where that has a meaning.
 *
 * float to float rounds once; equal dtypes copy bytes; i32 widens to i64; integers to float round
 * once. float to integer and i64 to i32 would lose values in silence and are refused. */
#include <string.h>

#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

pyg_status pyg_check_cast(const pyg_infer *in, pyg_dtype from, pyg_dtype to) {
    const pyg_dtype_info *f = pyg_dtype_row(from), *t = pyg_dtype_row(to);
    PYG_TRY(pyg_need_encoder(in, from, to));
    const bool both_index = (f->flags & t->flags & PYG_DT_INDEX) != 0;
    if (from == to || (t->flags & PYG_DT_FLOAT) != 0 || (both_index && t->bytes >= f->bytes))
        return PYG_OK;
    return pyg_op_fail(in, PYG_STATUS_dtype, "no cast from %s to %s: values could be lost", f->name,
                       t->name);
}

pyg_status pyg_infer_cont(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t;
    return pyg_infer_result(in, x->dtype, x->ndim, x->ne);
}

pyg_status pyg_infer_cast(pyg_infer *in) {
    const pyg_result_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    if (p->dtype < 0) return pyg_op_fail(in, PYG_STATUS_param, "dtype is missing");
    PYG_TRY(pyg_check_cast(in, x->dtype, (pyg_dtype)p->dtype));
    return pyg_infer_result(in, (pyg_dtype)p->dtype, x->ndim, x->ne);
}

pyg_status pyg_infer_cpy(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t, *dst = &in->src[1]->t;
    PYG_TRY(pyg_need_writable(in, 1));
    if (!pyg_same_shape(x, dst)) return pyg_op_fail(in, PYG_STATUS_shape, "shapes differ");
    PYG_TRY(pyg_check_cast(in, x->dtype, dst->dtype));
    in->out = *dst;
    in->view_of = 1;
    in->view_off = 0;
    return PYG_OK;
}

/* ---- integers to float ---- */

/* v with its low bits folded into the last of 24: a later rounding to fewer bits is then the only
 * one that counts (round to odd). */
static float odd_f32(int64_t v) {
    const uint64_t mag = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (mag < (uint64_t)1 << 24) return (float)v;
    const int shift = 64 - 24 - __builtin_clzll(mag);
    uint64_t top = mag >> shift;
    if ((top << shift) != mag) top |= 1;
    const float f = (float)(top << shift); /* exact: 24 significant bits */
    return v < 0 ? -f : f;
}

/* One span of integers, from its first element on; each is `step` bytes after the last. */
static void ints_to_span(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p,
                         float *buf) {
    pyg_tensor row = *x;
    row.data = pyg_row(x, p->i[0], p->i[1], p->i[2]);
    row.ne[1] = row.ne[2] = row.ne[3] = 1;
    float *out = pyg_span_out(dst, p->i, p->j0, buf);
    const bool final = dst->dtype == PYG_DTYPE_f32;
    for (int64_t k = 0; k < p->n; k++) {
        const int64_t v = pyg_index_at(&row, p->j0 + k);
        out[k] = final ? (float)v : odd_f32(v);
    }
    pyg_span_out_end(dst, p->i, p->j0, p->n, out);
}

/* i32 to i64, the only other pair of unlike integers. */
static void widen_span(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p) {
    const char *src = pyg_row(x, p->i[0], p->i[1], p->i[2]) + (size_t)p->j0 * x->nb[0];
    char *out = pyg_row(dst, p->i[0], p->i[1], p->i[2]) + (size_t)p->j0 * dst->nb[0];
    for (int64_t k = 0; k < p->n; k++) {
        int32_t narrow;
        memcpy(&narrow, src + (size_t)k * x->nb[0], sizeof narrow);
        const int64_t wide = narrow;
        memcpy(out + (size_t)k * dst->nb[0], &wide, sizeof wide);
    }
}

/* ---- the copy ---- */

/* t[0] = dst, t[1] = x. */
static void prepare(const pyg_node_io *io, pyg_tensor t[2]) {
    t[0] = *io->dst;
    t[1] = *io->src[0];
    pyg_collapse(t, 2);
}

pyg_status pyg_plan_copy(const pyg_node_io *io, pyg_plan *plan) {
    pyg_tensor t[2];
    prepare(io, t);
    plan->n_tasks[0] = pyg_split_pieces(&t[0], 1);
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    pyg_plan_copy_cost(plan, pyg_moved_bytes(io->src[0]) + pyg_moved_bytes(io->dst));
    return PYG_OK;
}

void pyg_run_copy(const pyg_task *task) {
    pyg_tensor t[2];
    prepare(&task->io, t);
    const pyg_tensor *dst = &t[0], *x = &t[1];
    float *buf = (float *)(void *)task->scratch;
    const bool ints = x->dtype != dst->dtype && pyg_has_flag(x, PYG_DT_INDEX);
    const bool widen = ints && pyg_has_flag(dst, PYG_DT_INDEX);
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(dst), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(dst, k, &p);
    for (; k < last; k++, pyg_piece_next(dst, &p)) {
        if (widen)
            widen_span(x, dst, &p);
        else if (ints)
            ints_to_span(x, dst, &p, buf);
        else
            pyg_span_copy(x, p.i, dst, p.i, p.j0, p.n, buf);
    }
}
