/* Row helpers for op authors: one body for every float dtype and layout.
 *
 * A "span" is n consecutive elements of one row, starting at element j0. For block dtypes j0 and n
 * are multiples of the block. Tensors may be strided along every axis; axes of length 1 broadcast.
 */
#ifndef PYG_OPS_ROWS_H
#define PYG_OPS_ROWS_H

#include "ops/op.h"

/* Elements of a span in elementwise ops: small enough for scratch, a multiple of every block. */
#define PYG_SPAN 2048

/* Where the span of row (i1, i2, i3) at element j0 lies. Indices and j0 of axes of length 1 are
 * taken as 0. */
char *pyg_span_at(const pyg_tensor *t, const int64_t i[3], int64_t j0);

/* F32 values of a span of row (i1, i2, i3) of t: t's own memory when that is dense F32, else
 * decoded into buf. A row of one element is repeated n times. */
const float *pyg_span_in(const pyg_tensor *t, const int64_t i[3], int64_t j0, int64_t n,
                         float *buf);

/* Where to write a span: t's own memory when that is dense F32, else buf; then pyg_span_out_end
 * stores it. */
float *pyg_span_out(const pyg_tensor *t, const int64_t i[3], int64_t j0, float *buf);
void pyg_span_out_end(const pyg_tensor *t, const int64_t i[3], int64_t j0, int64_t n,
                      const float *values);

/* Element number k (0 .. ne0*ne1*ne2*ne3 - 1, row-major) of an I32 or I64 tensor. */
int64_t pyg_index_at(const pyg_tensor *ids, int64_t k);

/* Units first..last-1 of `total` that task t of n takes. */
static inline void pyg_task_range(const pyg_task *task, int64_t total, int64_t *first,
                                  int64_t *last) {
    *first = total * task->index / task->n_tasks;
    *last = total * (task->index + 1) / task->n_tasks;
}

/* Tasks for `units` pieces of about `work` element-operations each: one task below a threshold
 * where waking workers costs more than it gives, else pieces of about 16k element-operations, at
 * most `units` and 1024. */
int64_t pyg_split(int64_t units, int64_t work);

#endif
