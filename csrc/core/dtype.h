/* Dtypes: the traits row of each, and byte sizes of rows.
 *
 * The rows are in dtype_table.inc. Kernels of a dtype are found through kernels/kernels.h. */
#ifndef PYG_CORE_DTYPE_H
#define PYG_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pyggml.h"

enum {
    PYG_DT_FLOAT = 1,    /* converts to and from F32 */
    PYG_DT_INDEX = 2,    /* an integer that can index rows */
    PYG_DT_BLOCK = 4,    /* elements share a block: no element has an address of its own */
    PYG_DT_SCALED = 8,   /* takes a static scale kept beside the tensor */
    PYG_DT_FIXED = 16,   /* a float dtype that is decoded only: results cannot be stored in it */
    PYG_DT_INTEGER = 32, /* a signed integer of `bytes` bytes */
    PYG_DT_STORAGE = 64, /* held, viewed, copied and cast, but no operand of arithmetic */
};

/* True when `dtype` is one of the table's rows. */
bool pyg_dtype_valid(int dtype);

/* The row of a valid dtype. */
const pyg_dtype_info *pyg_dtype_row(pyg_dtype dtype);

/* Bytes of n elements; n must be a multiple of the block. Saturates at SIZE_MAX on overflow. */
size_t pyg_row_bytes(pyg_dtype dtype, int64_t n);

#endif
