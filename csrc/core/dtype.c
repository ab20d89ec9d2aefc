#include "core/dtype.h"

static const pyg_dtype_info rows[PYG_N_DTYPES] = {
#define PYG_DTYPE(name, gguf, elems, bytes, flags, to_f32, from_f32, dot, mv, numpy)               \
    {#name, gguf, elems, bytes, flags, numpy},
#include "core/dtype_table.inc"
#undef PYG_DTYPE
};

bool pyg_dtype_valid(int dtype) { return dtype >= 0 && dtype < PYG_N_DTYPES; }

const pyg_dtype_info *pyg_dtype_get(int dtype) {
    return pyg_dtype_valid(dtype) ? &rows[dtype] : NULL;
}

const pyg_dtype_info *pyg_dtype_row(pyg_dtype dtype) { return &rows[dtype]; }

size_t pyg_row_bytes(pyg_dtype dtype, int64_t n) {
    const pyg_dtype_info *row = &rows[dtype];
    const uint64_t blocks = (uint64_t)n / (uint64_t)row->block;
    if (blocks > SIZE_MAX / (uint64_t)row->bytes) return SIZE_MAX;
    return (size_t)(blocks * (uint64_t)row->bytes);
}
