/* Row helpers: spans in and out of any float dtype and layout, axis joining, index reads. */
#include "ops/rows.h"

#include <string.h>

#include "kernels/kernels.h"
#include "ops/spans.h"

/* Element-operations a task: some 3 us of streaming work, three times what waking a worker costs.
 */
#define TASK_WORK 16384
#define MAX_TASKS 1024
/* Strided elements are gathered through a buffer of this size on the stack. */
#define GATHER_BYTES 2048

/* ---- strided units ---- */

/* With a constant `unit` the copy is one load and one store. */
static inline __attribute__((always_inline)) void
copy_fixed(char *dst, size_t dst_step, const char *src, size_t src_step, size_t unit, int64_t n) {
    for (int64_t k = 0; k < n; k++)
        memcpy(dst + (size_t)k * dst_step, src + (size_t)k * src_step, unit);
}

/* n units, `step` bytes apart on each side. */
static void copy_units(char *dst, size_t dst_step, const char *src, size_t src_step, size_t unit,
                       int64_t n) {
    if (n <= 1 || (dst_step == unit && src_step == unit))
        memmove(dst, src, unit * (size_t)n);
    else if (unit == 1)
        copy_fixed(dst, dst_step, src, src_step, 1, n);
    else if (unit == 2)
        copy_fixed(dst, dst_step, src, src_step, 2, n);
    else if (unit == 4)
        copy_fixed(dst, dst_step, src, src_step, 4, n);
    else if (unit == 8)
        copy_fixed(dst, dst_step, src, src_step, 8, n);
    else
        for (int64_t k = 0; k < n; k++)
            memmove(dst + (size_t)k * dst_step, src + (size_t)k * src_step, unit);
}

char *pyg_span_at(const pyg_tensor *t, const int64_t i[3], int64_t j0) {
    const int64_t j = t->ne[0] == 1 ? 0 : j0 / pyg_dtype_row(t->dtype)->block;
    return pyg_row(t, t->ne[1] == 1 ? 0 : i[0], t->ne[2] == 1 ? 0 : i[1],
                   t->ne[3] == 1 ? 0 : i[2]) +
           (size_t)j * t->nb[0];
}

/* ---- spans ---- */

static void decode(const pyg_tensor *t, const char *src, int64_t n, float *out) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    const pyg_to_f32_fn to_f32 = pyg_to_f32(t->dtype);
    const size_t unit = (size_t)row->bytes;
    if (t->nb[0] == unit || n <= row->block) {
        to_f32(src, out, n);
        return;
    }
    _Alignas(16) char tmp[GATHER_BYTES];
    const int64_t units = n / row->block, step = (int64_t)(sizeof tmp / unit);
    for (int64_t u = 0; u < units; u += step) {
        const int64_t m = units - u < step ? units - u : step;
        copy_units(tmp, unit, src + (size_t)u * t->nb[0], t->nb[0], unit, m);
        to_f32(tmp, out + u * row->block, m * row->block);
    }
}

static void encode(const pyg_tensor *t, const float *values, int64_t n, char *dst) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    const pyg_from_f32_fn from_f32 = pyg_from_f32(t->dtype);
    const size_t unit = (size_t)row->bytes;
    if (t->nb[0] == unit || n <= row->block) {
        from_f32(values, dst, n);
        return;
    }
    _Alignas(16) char tmp[GATHER_BYTES];
    const int64_t units = n / row->block, step = (int64_t)(sizeof tmp / unit);
    for (int64_t u = 0; u < units; u += step) {
        const int64_t m = units - u < step ? units - u : step;
        from_f32(values + u * row->block, tmp, m * row->block);
        copy_units(dst + (size_t)u * t->nb[0], t->nb[0], tmp, unit, unit, m);
    }
}

const float *pyg_span_in(const pyg_tensor *t, const int64_t i[3], int64_t j0, int64_t n,
                         float *buf) {
    const char *src = pyg_span_at(t, i, j0);
    const bool repeat = t->ne[0] == 1 && n > 1;
    if (pyg_dense_f32_rows(t) && !repeat) return (const float *)(const void *)src;
    decode(t, src, repeat ? 1 : n, buf);
    if (repeat)
        for (int64_t k = 1; k < n; k++) buf[k] = buf[0];
    return buf;
}

float *pyg_span_out(const pyg_tensor *t, const int64_t i[3], int64_t j0, float *buf) {
    return pyg_dense_f32_rows(t) ? (float *)(void *)pyg_span_at(t, i, j0) : buf;
}

void pyg_span_out_end(const pyg_tensor *t, const int64_t i[3], int64_t j0, int64_t n,
                      const float *values) {
    char *dst = pyg_span_at(t, i, j0);
    if ((const char *)values != dst) encode(t, values, n, dst);
}

void pyg_span_copy(const pyg_tensor *src, const int64_t src_i[3], const pyg_tensor *dst,
                   const int64_t dst_i[3], int64_t j0, int64_t n, float *buf) {
    if (src->dtype == dst->dtype) {
        const pyg_dtype_info *row = pyg_dtype_row(src->dtype);
        copy_units(pyg_span_at(dst, dst_i, j0), dst->nb[0], pyg_span_at(src, src_i, j0), src->nb[0],
                   (size_t)row->bytes, n / row->block);
        return;
    }
    float *out = pyg_span_out(dst, dst_i, j0, buf);
    pyg_span_out_end(dst, dst_i, j0, n, pyg_span_in(src, src_i, j0, n, out));
}

/* ---- axes ---- */

/* Axes k and a (the next one that counts) of t are one axis when walked together. */
static bool joins(const pyg_tensor *t, const pyg_tensor *shape, int k, int a) {
    if (t->ne[k] == 1 && t->ne[a] == 1) return true; /* broadcast along both */
    const int64_t units = k == 0 ? t->ne[0] / pyg_dtype_row(t->dtype)->block : t->ne[k];
    return t->ne[k] == shape->ne[k] && t->ne[a] == shape->ne[a] &&
           t->nb[a] == t->nb[k] * (size_t)units;
}

static void move_axis(pyg_tensor *t, int from, int to) {
    if (from == to) return;
    t->ne[to] = t->ne[from];
    t->nb[to] = t->nb[from];
    t->ne[from] = 1;
}

void pyg_collapse(pyg_tensor *t, int count) {
    int k = 0;
    for (int a = 1; a < PYG_MAX_DIMS; a++) {
        if (t[0].ne[a] == 1) continue;
        bool join = true;
        for (int s = 0; s < count; s++) join = join && joins(&t[s], &t[0], k, a);
        const bool skip = t[0].ne[k] == 1; /* axis k is of no use: a takes its place */
        if (!join && !skip) k++;
        for (int s = count - 1; s >= 0; s--) {
            if (!join || skip) {
                move_axis(&t[s], a, k);
            } else {
                t[s].ne[k] *= t[s].ne[a];
                t[s].ne[a] = 1;
            }
        }
    }
}

/* ---- indices and tasks ---- */

int64_t pyg_index_at(const pyg_tensor *ids, int64_t k) {
    const char *at = ids->data;
    if (pyg_n_rows(ids) == 1) {
        at += (size_t)k * ids->nb[0];
    } else {
        int64_t i[3];
        pyg_row_index(ids->ne, k / ids->ne[0], i);
        at = pyg_row(ids, i[0], i[1], i[2]) + (size_t)(k % ids->ne[0]) * ids->nb[0];
    }
    int64_t wide;
    int32_t narrow;
    if (pyg_dtype_row(ids->dtype)->bytes == (int32_t)sizeof wide) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

int64_t pyg_split(int64_t units, int64_t work) {
    int64_t total;
    if (__builtin_mul_overflow(units, work, &total)) total = INT64_MAX;
    int64_t n = total / TASK_WORK;
    if (n > units) n = units;
    if (n > MAX_TASKS) n = MAX_TASKS;
    return n < 1 ? 1 : n;
}
