/* concat, repeat, pad: results put together from copies of their operands.
 *
 * Each is a list of parts of the result, strided views that are filled by span copies; bytes move
 * unchanged where the dtypes agree, so integers and block formats pass through exactly. */
#include <string.h>

#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

/* t[0] is a part of the result, t[1] what fills it. */
static void copy_pieces(pyg_tensor t[2], int64_t k, int64_t last, float *buf) {
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(&t[0], k, &p);
    for (; k < last; k++, pyg_piece_next(&t[0], &p))
        pyg_span_copy(&t[1], p.i, &t[0], p.i, p.j0, p.n, buf);
}

/* The part of dst that starts at element `at` of an axis (of a block, for block formats). */
static void move_to(pyg_tensor *dst, int axis, int64_t at) {
    if (dst->data == NULL) return; /* while planning */
    const int64_t unit = axis == 0 ? pyg_dtype_row(dst->dtype)->block : 1;
    dst->data += (size_t)(at / unit) * dst->nb[axis];
}

/* Work of a piece, for pyg_split. */
static int64_t piece_work(const pyg_tensor *t) {
    return t->ne[0] < PYG_SPAN ? t->ne[0] + 8 : PYG_SPAN;
}

/* ---- concat ---- */

static pyg_status concat_dtype(const pyg_infer *in, int64_t asked, pyg_dtype *out) {
    const pyg_tensor *a = &in->src[0]->t, *b = &in->src[1]->t;
    *out = a->dtype;
    if (a->dtype == b->dtype && (asked < 0 || asked == (int64_t)a->dtype)) return PYG_OK;
    if (!pyg_has_flag(a, PYG_DT_FLOAT) || !pyg_has_flag(b, PYG_DT_FLOAT))
        return pyg_op_fail(in, PYG_STATUS_dtype, "a and b must be of one dtype or both be floats");
    return pyg_result_dtype(in, asked, 0, 1, out);
}

pyg_status pyg_infer_concat(pyg_infer *in) {
    const pyg_concat_params *p = in->params;
    const pyg_tensor *a = &in->src[0]->t, *b = &in->src[1]->t;
    if (a->ndim != b->ndim || p->axis >= a->ndim)
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "a and b need equally many axes, and the one named");
    int64_t ne[PYG_MAX_DIMS];
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        ne[i] = a->ne[i];
        if (i != p->axis && a->ne[i] != b->ne[i])
            return pyg_op_fail(in, PYG_STATUS_shape, "a and b may differ only along the axis");
    }
    if (__builtin_add_overflow(ne[p->axis], b->ne[p->axis], &ne[p->axis]))
        return pyg_op_fail(in, PYG_STATUS_shape, "the axis would be too long");
    pyg_dtype dtype;
    PYG_TRY(concat_dtype(in, p->dtype, &dtype));
    const pyg_dtype_info *row = pyg_dtype_row(dtype);
    if (p->axis == 0 && a->ne[0] % row->block != 0)
        return pyg_op_fail(in, PYG_STATUS_shape, "b would start inside a block of %s", row->name);
    return pyg_infer_result(in, dtype, a->ndim, ne);
}

/* Both parts: part[s][0] of the result, part[s][1] the operand. */
static void concat_parts(const pyg_node_io *io, pyg_tensor part[2][2]) {
    const pyg_concat_params *p = io->params;
    for (int s = 0; s < 2; s++) {
        part[s][0] = *io->dst;
        part[s][1] = *io->src[s];
        part[s][0].ne[p->axis] = io->src[s]->ne[p->axis];
        if (s == 1) move_to(&part[s][0], (int)p->axis, io->src[0]->ne[p->axis]);
        pyg_collapse(part[s], 2);
    }
}

pyg_status pyg_plan_concat(const pyg_node_io *io, pyg_plan *plan) {
    plan->flops = 0;
    pyg_tensor part[2][2];
    concat_parts(io, part);
    const int64_t wa = piece_work(&part[0][0]), wb = piece_work(&part[1][0]);
    plan->n_tasks[0] =
        pyg_split(pyg_n_pieces(&part[0][0]) + pyg_n_pieces(&part[1][0]), wa > wb ? wa : wb);
    plan->scratch_bytes = PYG_SPAN * sizeof(float);
    return PYG_OK;
}

void pyg_run_concat(const pyg_task *task) {
    pyg_tensor part[2][2];
    concat_parts(&task->io, part);
    float *buf = (float *)(void *)task->scratch;
    const int64_t na = pyg_n_pieces(&part[0][0]), nb = pyg_n_pieces(&part[1][0]);
    int64_t k, last;
    pyg_task_range(task, na + nb, &k, &last);
    copy_pieces(part[0], k, last < na ? last : na, buf);
    copy_pieces(part[1], (k > na ? k : na) - na, last - na, buf);
}

/* ---- repeat ---- */

pyg_status pyg_infer_repeat(pyg_infer *in) {
    const pyg_reshape_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    bool fits = p->ndim >= x->ndim;
    for (int i = 0; i < x->ndim && fits; i++)
        fits = x->ne[i] == 0 ? p->size[i] == 0 : p->size[i] % x->ne[i] == 0;
    if (!fits)
        return pyg_op_fail(in, PYG_STATUS_shape,
                           "each axis of the shape must be a whole multiple of that of x");
    return pyg_infer_result(in, x->dtype, (int)p->ndim, p->size);
}

/* t[0]: one tile of dst, t[1]: x, stretched with stride 0 along axes of one element. Returns how
 * many tiles dst holds; tiles[a] of them along axis a. */
static int64_t repeat_tiles(const pyg_node_io *io, pyg_tensor t[2], int64_t tiles[PYG_MAX_DIMS]) {
    t[0] = *io->dst;
    t[1] = *io->src[0];
    if (pyg_n_elements(&t[0]) == 0) return 0;
    int64_t n = 1;
    for (int a = 0; a < PYG_MAX_DIMS; a++) {
        tiles[a] = 1;
        if (t[1].ne[a] == 1) {
            t[1].ne[a] = t[0].ne[a];
            t[1].nb[a] = 0;
        } else {
            tiles[a] = t[0].ne[a] / t[1].ne[a];
            t[0].ne[a] = t[1].ne[a];
        }
        n *= tiles[a];
    }
    return n;
}

pyg_status pyg_plan_repeat(const pyg_node_io *io, pyg_plan *plan) {
    plan->flops = 0;
    pyg_tensor t[2];
    int64_t tiles[PYG_MAX_DIMS];
    const int64_t n = repeat_tiles(io, t, tiles);
    if (n == 0) return PYG_OK;
    pyg_collapse(t, 2);
    plan->n_tasks[0] = pyg_split(n * pyg_n_pieces(&t[0]), piece_work(&t[0]));
    return PYG_OK;
}

void pyg_run_repeat(const pyg_task *task) {
    pyg_tensor t[2];
    int64_t tiles[PYG_MAX_DIMS], k, last;
    const int64_t n = repeat_tiles(&task->io, t, tiles);
    if (n == 0) return;
    size_t step[PYG_MAX_DIMS]; /* bytes from one tile to the next */
    for (int a = 0; a < PYG_MAX_DIMS; a++)
        step[a] = (size_t)(a == 0 ? t[0].ne[0] / pyg_dtype_row(t[0].dtype)->block : t[0].ne[a]) *
                  t[0].nb[a];
    pyg_collapse(t, 2);
    char *const data = t[0].data;
    const int64_t pieces = pyg_n_pieces(&t[0]);
    pyg_task_range(task, n * pieces, &k, &last);
    while (k < last) {
        int64_t tile = k / pieces;
        const int64_t first = k % pieces, left = last - k;
        const int64_t count = pieces - first < left ? pieces - first : left;
        t[0].data = data;
        for (int a = 0; a < PYG_MAX_DIMS; tile /= tiles[a], a++)
            t[0].data += (size_t)(tile % tiles[a]) * step[a];
        copy_pieces(t, first, first + count, NULL);
        k += count;
    }
}

/* ---- pad ---- */

pyg_status pyg_infer_pad(pyg_infer *in) {
    const pyg_pad_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    const pyg_dtype_info *row = pyg_dtype_row(x->dtype);
    int64_t ne[PYG_MAX_DIMS];
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        if (p->before[i] < 0 || p->after[i] < 0)
            return pyg_op_fail(in, PYG_STATUS_param, "before and after must not be negative");
        if (i >= x->ndim && (p->before[i] > 0 || p->after[i] > 0))
            return pyg_op_fail(in, PYG_STATUS_shape, "x has no such axis to pad");
        if (__builtin_add_overflow(x->ne[i], p->before[i], &ne[i]) ||
            __builtin_add_overflow(ne[i], p->after[i], &ne[i]))
            return pyg_op_fail(in, PYG_STATUS_shape, "axis %d would be too long", x->ndim - 1 - i);
    }
    if (p->before[0] % row->block != 0)
        return pyg_op_fail(in, PYG_STATUS_shape, "x would start inside a block of %s", row->name);
    return pyg_infer_result(in, x->dtype, x->ndim, ne);
}

pyg_status pyg_plan_pad(const pyg_node_io *io, pyg_plan *plan) {
    plan->flops = 0;
    plan->n_tasks[0] = pyg_split(pyg_n_pieces(io->dst), piece_work(io->dst));
    return PYG_OK;
}

/* Elements first..end-1 of a row become zeros: in every format the bytes of 0 are zeros. */
static void zero_run(const pyg_tensor *dst, const int64_t i[3], int64_t first, int64_t end) {
    if (end <= first) return;
    const int64_t block = pyg_dtype_row(dst->dtype)->block;
    memset(pyg_row(dst, i[0], i[1], i[2]) + (size_t)(first / block) * dst->nb[0], 0,
           (size_t)((end - first) / block) * dst->nb[0]);
}

void pyg_run_pad(const pyg_task *task) {
    const pyg_pad_params *params = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    pyg_tensor inner = *dst; /* the part that holds x */
    for (int a = 0; a < PYG_MAX_DIMS; a++) {
        inner.ne[a] = x->ne[a];
        move_to(&inner, a, params->before[a]);
    }
    int64_t k, last;
    pyg_task_range(task, pyg_n_pieces(dst), &k, &last);
    if (k >= last) return;
    pyg_piece p;
    pyg_piece_at(dst, k, &p);
    for (; k < last; k++, pyg_piece_next(dst, &p)) {
        int64_t from[3], first = params->before[0], end = first + x->ne[0];
        bool outside = false;
        for (int a = 0; a < 3; a++) {
            from[a] = p.i[a] - params->before[a + 1];
            outside = outside || from[a] < 0 || from[a] >= x->ne[a + 1];
        }
        const int64_t stop = p.j0 + p.n;
        first = first < p.j0 ? p.j0 : first > stop ? stop : first;
        end = outside || end < first ? first : end > stop ? stop : end;
        zero_run(dst, p.i, p.j0, first);
        zero_run(dst, p.i, end, stop);
        if (end > first)
            pyg_span_copy(x, from, &inner, from, first - params->before[0], end - first, NULL);
    }
}
