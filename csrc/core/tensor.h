/* Tensors: shape and stride arithmetic, checked for overflow; predicates that ops ask. */
#ifndef PYG_CORE_TENSOR_H
#define PYG_CORE_TENSOR_H

#include <stdbool.h>

#include "core/dtype.h"
#include "pyggml.h"

/* Fills dtype, ndim, ne (1 beyond ndim) and contiguous strides. PYG_STATUS_shape when an extent is
 * negative, the first axis does not hold whole blocks, or the byte size passes 2^62. data is set to
 * NULL. */
pyg_status pyg_tensor_init(pyg_tensor *t, pyg_dtype dtype, int ndim, const int64_t *ne);

/* Product of the extents. */
int64_t pyg_n_elements(const pyg_tensor *t);

/* Product of the extents of axes 1..3: how many rows. */
int64_t pyg_n_rows(const pyg_tensor *t);

/* Bytes from the first to one past the last byte that the tensor touches; 0 when it has no
 * elements. SIZE_MAX on overflow. */
size_t pyg_extent_bytes(const pyg_tensor *t);

/* Elements of a row lie side by side. */
bool pyg_row_contiguous(const pyg_tensor *t);

/* The whole tensor is one dense run in C order. */
bool pyg_contiguous(const pyg_tensor *t);

bool pyg_same_shape(const pyg_tensor *a, const pyg_tensor *b);

/* Address of row (i1, i2, i3). */
static inline char *pyg_row(const pyg_tensor *t, int64_t i1, int64_t i2, int64_t i3) {
    return t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
}

/* Splits row number r of a tensor of shape ne into its indices along axes 1..3. */
static inline void pyg_row_index(const int64_t *ne, int64_t r, int64_t i[3]) {
    i[0] = r % ne[1];
    i[1] = r / ne[1] % ne[2];
    i[2] = r / (ne[1] * ne[2]);
}

/* Writes "(7, 512) f32" (numpy order) into buf. */
void pyg_tensor_describe(const pyg_tensor *t, char *buf, size_t bytes);

/* Copies any layout into a dense run at dst, bytes unchanged. */
void pyg_pack_bytes(const pyg_tensor *t, char *dst);

#endif
