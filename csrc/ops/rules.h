/* Rules that many infer functions share. */
#ifndef PYG_OPS_RULES_H
#define PYG_OPS_RULES_H

#include "ops/op.h"

/* Fills in->out by pyg_tensor_init; its errors gain the name of the op and the operands. */
static inline pyg_status pyg_infer_result(pyg_infer *in, pyg_dtype dtype, int ndim,
                                          const int64_t *ne) {
    const pyg_status status = pyg_tensor_init(&in->out, dtype, ndim, ne);
    return status == PYG_OK ? PYG_OK : pyg_op_fail(in, status, "%s", pyg_last_message());
}

static inline bool pyg_has_flag(const pyg_tensor *t, uint32_t flag) {
    return (pyg_dtype_row(t->dtype)->flags & flag) != 0;
}

/* Operand k must convert to and from F32. */
static inline pyg_status pyg_need_float(const pyg_infer *in, int k) {
    if (pyg_has_flag(&in->src[k]->t, PYG_DT_FLOAT)) return PYG_OK;
    if (pyg_has_flag(&in->src[k]->t, PYG_DT_STORAGE))
        return pyg_op_fail(in, PYG_STATUS_dtype, "%s is only stored as %s; cast it first",
                           in->op->src_name[k], pyg_dtype_row(in->src[k]->t.dtype)->name);
    return pyg_op_fail(in, PYG_STATUS_dtype, "%s must have a float dtype", in->op->src_name[k]);
}

/* Operand k must hold row indices or positions. */
static inline pyg_status pyg_need_index(const pyg_infer *in, int k) {
    if (pyg_has_flag(&in->src[k]->t, PYG_DT_INDEX)) return PYG_OK;
    return pyg_op_fail(in, PYG_STATUS_dtype, "%s must be i32 or i64", in->op->src_name[k]);
}

/* Values of dtype `from` go into `to`: bytes when the two agree, else `to` needs an encoder. */
static inline pyg_status pyg_need_encoder(const pyg_infer *in, pyg_dtype from, pyg_dtype to) {
    if (from == to || !(pyg_dtype_row(to)->flags & PYG_DT_FIXED)) return PYG_OK;
    return pyg_op_fail(in, PYG_STATUS_dtype, "%s can be read but not made: it has no encoder",
                       pyg_dtype_row(to)->name);
}

/* Operand k must be memory that may be written. */
static inline pyg_status pyg_need_writable(const pyg_infer *in, int k) {
    if (in->src[k]->writable) return PYG_OK;
    return pyg_op_fail(in, PYG_STATUS_read_only, "%s is read-only", in->op->src_name[k]);
}

/* Values of dtype `from` may be stored as `to` (copy.c). */
pyg_status pyg_check_cast(const pyg_infer *in, pyg_dtype from, pyg_dtype to);

/* The dtype rule of ops whose result is F32 unless another float dtype is asked for. */
static inline pyg_status pyg_f32_unless(const pyg_infer *in, int64_t asked, pyg_dtype *out) {
    *out = PYG_DTYPE_f32;
    return asked < 0 ? PYG_OK : pyg_result_dtype(in, asked, 0, 0, out);
}

#endif
