#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

#include "core/status.h"

#define MAX_BYTES ((uint64_t)1 << 62)

pyg_status pyg_tensor_init(pyg_tensor *t, pyg_dtype dtype, int ndim, const int64_t *ne) {
    if (ndim < 0 || ndim > PYG_MAX_DIMS)
        return pyg_fail(PYG_STATUS_shape, "a tensor has 0 to %d axes, not %d", PYG_MAX_DIMS, ndim);
    const pyg_dtype_info *row = pyg_dtype_row(dtype);
    t->data = NULL;
    t->dtype = dtype;
    t->ndim = ndim;
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        t->ne[i] = i < ndim ? ne[i] : 1;
        if (t->ne[i] < 0)
            return pyg_fail(PYG_STATUS_shape, "axis %d has the negative length %lld", ndim - 1 - i,
                            (long long)t->ne[i]);
    }
    if (t->ne[0] % row->block != 0)
        return pyg_fail(PYG_STATUS_shape,
                        "the last axis has %lld elements; %s needs a multiple of its block of %d",
                        (long long)t->ne[0], row->name, row->block);
    uint64_t bytes = (uint64_t)row->bytes;
    /* a block may have more elements than bytes: their number is bounded, too */
    uint64_t most = bytes > (uint64_t)row->block ? bytes : (uint64_t)row->block;
    t->nb[0] = (size_t)bytes;
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        const uint64_t n = (uint64_t)(i == 0 ? t->ne[0] / row->block : t->ne[i]);
        if (n > 0 && most > MAX_BYTES / n)
            return pyg_fail(PYG_STATUS_shape, "the tensor would pass 2^62 %s",
                            bytes > MAX_BYTES / n ? "bytes" : "elements");
        bytes *= n > 0 ? n : 1;
        most *= n > 0 ? n : 1;
        if (i + 1 < PYG_MAX_DIMS) t->nb[i + 1] = (size_t)bytes;
    }
    return PYG_OK;
}

int64_t pyg_n_elements(const pyg_tensor *t) { return t->ne[0] * pyg_n_rows(t); }

int64_t pyg_n_rows(const pyg_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

size_t pyg_extent_bytes(const pyg_tensor *t) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    size_t end = (size_t)row->bytes;
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        const int64_t n = i == 0 ? t->ne[0] / row->block : t->ne[i];
        if (n == 0) return 0;
        size_t step;
        if (__builtin_mul_overflow((size_t)(n - 1), t->nb[i], &step) ||
            __builtin_add_overflow(end, step, &end))
            return SIZE_MAX;
    }
    return end;
}

bool pyg_row_contiguous(const pyg_tensor *t) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    return t->ne[0] <= row->block || t->nb[0] == (size_t)row->bytes;
}

bool pyg_contiguous(const pyg_tensor *t) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    size_t expect = (size_t)row->bytes;
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        const int64_t n = i == 0 ? t->ne[0] / row->block : t->ne[i];
        if (n == 0) return true;
        if (n != 1 && t->nb[i] != expect) return false;
        expect *= (size_t)n;
    }
    return true;
}

bool pyg_same_shape(const pyg_tensor *a, const pyg_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

void pyg_tensor_describe(const pyg_tensor *t, char *buf, size_t bytes) {
    size_t used = 0;
    char text[128] = "(";
    used = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const char *sep = i > 0 ? ", " : t->ndim == 1 ? "," : "";
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%lld%s", (long long)t->ne[i], sep);
    }
    snprintf(buf, bytes, "%s) %s", text, pyg_dtype_row(t->dtype)->name);
}

void pyg_pack_bytes(const pyg_tensor *t, char *dst) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    const size_t unit = (size_t)row->bytes;
    const int64_t units = t->ne[0] / row->block;
    const size_t row_bytes = unit * (size_t)units;
    const int64_t rows = pyg_n_rows(t);
    if (units == 0 || rows == 0) return;
    if (pyg_contiguous(t)) {
        memcpy(dst, t->data, row_bytes * (size_t)rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++, dst += row_bytes) {
        int64_t i[3];
        pyg_row_index(t->ne, r, i);
        const char *src = pyg_row(t, i[0], i[1], i[2]);
        if (t->nb[0] == unit) {
            memcpy(dst, src, row_bytes);
            continue;
        }
        for (int64_t j = 0; j < units; j++)
            memcpy(dst + (size_t)j * unit, src + (size_t)j * t->nb[0], unit);
    }
}
