/* cont, cast, cpy: copies between any two layouts, and between dtypes where that has a meaning.
 *
 * float to float rounds once, f64 among them; equal dtypes copy bytes; integers widen; integers to
 * float round once. float to integer and integers to fewer bytes would lose values in silence and
 * are refused. */
#include <string.h>

#include "formats/f64.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

pyg_status pyg_check_cast(const pyg_infer *in, pyg_dtype from, pyg_dtype to) {
    const pyg_dtype_info *f = pyg_dtype_row(from), *t = pyg_dtype_row(to);
    PYG_TRY(pyg_need_encoder(in, from, to));
    const bool both_integer = (f->flags & t->flags & PYG_DT_INTEGER) != 0;
    if (from == to || !(t->flags & PYG_DT_INTEGER) || (both_integer && t->bytes >= f->bytes))
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

/* ---- integers ---- */

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

static char *element(const pyg_tensor *t, const pyg_piece *p, int64_t k) {
    return pyg_row(t, p->i[0], p->i[1], p->i[2]) + (size_t)(p->j0 + k) * t->nb[0];
}

/* The integer at p, little endian as all formats here. */
static int64_t int_at(const char *p, size_t bytes) {
    uint64_t bits = 0;
    memcpy(&bits, p, bytes);
    const int unused = 64 - 8 * (int)bytes;
    return (int64_t)(bits << unused) >> unused; /* brings the sign along */
}

static void ints_to_floats(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p,
                           float *buf) {
    const size_t bytes = (size_t)pyg_dtype_row(x->dtype)->bytes;
    float *out = pyg_span_out(dst, p->i, p->j0, buf);
    const bool final = dst->dtype == PYG_DTYPE_f32;
    for (int64_t k = 0; k < p->n; k++) {
        const int64_t v = int_at(element(x, p, k), bytes);
        out[k] = final ? (float)v : odd_f32(v);
    }
    pyg_span_out_end(dst, p->i, p->j0, p->n, out);
}

static void ints_to_ints(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p,
                         float *buf) {
    const size_t bytes = (size_t)pyg_dtype_row(x->dtype)->bytes;
    const size_t wide = (size_t)pyg_dtype_row(dst->dtype)->bytes;
    (void)buf;
    for (int64_t k = 0; k < p->n; k++) {
        const int64_t v = int_at(element(x, p, k), bytes);
        memcpy(element(dst, p, k), &v, wide);
    }
}

/* ---- f64 ---- */

static void ints_to_doubles(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p,
                            float *buf) {
    const size_t bytes = (size_t)pyg_dtype_row(x->dtype)->bytes;
    (void)buf;
    for (int64_t k = 0; k < p->n; k++) {
        const double v = (double)int_at(element(x, p, k), bytes);
        memcpy(element(dst, p, k), &v, sizeof v);
    }
}

static void doubles_to_floats(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p,
                              float *buf) {
    float *out = pyg_span_out(dst, p->i, p->j0, buf);
    const bool final = dst->dtype == PYG_DTYPE_f32;
    for (int64_t k = 0; k < p->n; k++) {
        double v;
        memcpy(&v, element(x, p, k), sizeof v);
        out[k] = final ? (float)v : pyg_f64_to_odd(v);
    }
    pyg_span_out_end(dst, p->i, p->j0, p->n, out);
}

static void floats_to_doubles(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p,
                              float *buf) {
    const float *in = pyg_span_in(x, p->i, p->j0, p->n, buf);
    for (int64_t k = 0; k < p->n; k++) {
        const double v = in[k];
        memcpy(element(dst, p, k), &v, sizeof v);
    }
}

static void same_class(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p, float *buf) {
    pyg_span_copy(x, p->i, dst, p->i, p->j0, p->n, buf);
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

typedef void (*span_fn)(const pyg_tensor *x, const pyg_tensor *dst, const pyg_piece *p, float *buf);

enum { FLOATS, INTEGERS, DOUBLES };

static int class_of(const pyg_tensor *t) {
    if (pyg_has_flag(t, PYG_DT_INTEGER)) return INTEGERS;
    return pyg_has_flag(t, PYG_DT_FLOAT) ? FLOATS : DOUBLES;
}

static span_fn span_copier(const pyg_tensor *x, const pyg_tensor *dst) {
    static const span_fn from_to[3][3] = {
        [FLOATS] = {[FLOATS] = same_class, [DOUBLES] = floats_to_doubles},
        [INTEGERS] =
            {[FLOATS] = ints_to_floats, [INTEGERS] = ints_to_ints, [DOUBLES] = ints_to_doubles},
        [DOUBLES] = {[FLOATS] = doubles_to_floats, [DOUBLES] = same_class},
    };
    return x->dtype == dst->dtype ? same_class : from_to[class_of(x)][class_of(dst)];
}

void pyg_run_copy(const pyg_task *task) {
    pyg_tensor t[2];
    prepare(&task->io, t);
    const pyg_tensor *dst = &t[0], *x = &t[1];
    float *buf = (float *)(void *)task->scratch;
    const span_fn copy = span_copier(x, dst);
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(dst), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(dst, k, &p);
    for (; k < last; k++, pyg_piece_next(dst, &p)) copy(x, dst, &p, buf);
}
