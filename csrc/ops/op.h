/* What an op is: the descriptor row, and the structs that infer, plan, init and run receive.
 *
 * An op author writes `infer` (the only place that may reject), `plan` (pure arithmetic) and `run`
 * (one task; cannot fail, allocates nothing, calls only kernels and the row helpers of ops/rows.h).
 * docs/design.md tells how the pieces meet; ops/op_table.inc is the list. */
#ifndef PYG_OPS_OP_H
#define PYG_OPS_OP_H

#include <float.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/status.h"
#include "core/tensor.h"

#define PYG_MAX_PARAM_BYTES 192
#define PYG_REQUIRED (0.0 / 0.0)
#define PYG_F32_MAX FLT_MAX
#define PYG_F32_INF (1.0f / 0.0f)

/* ---- ids ----------------------------------------------------------------------------------- */

typedef enum pyg_op_id {
#define PYG_OP(name, ...) PYG_OP_ID_##name,
#include "ops/op_table.inc"
#undef PYG_OP
    PYG_N_OPS
} pyg_op_id;

enum {
    PYG_OP_VIEW = 1,    /* no run: the result is a view of operand 0 */
    PYG_OP_WRITE = 2,   /* writes into an operand and returns a view of it */
    PYG_OP_TABLE_1 = 4, /* the rows that indices name are operand 1's, else operand 0's */
};
/* The result may take over the memory of operand k when shape, dtype and density agree. */
#define PYG_OP_IN_PLACE(k) (16u << (k))

/* ---- parameters ---------------------------------------------------------------------------- */

#define PYG_PARAMS_BEGIN(set) typedef struct pyg_##set##_params {
#define PYG_PARAM_I64(set, field, def, lo, hi) int64_t field;
#define PYG_PARAM_F32(set, field, def, lo, hi) float field;
#define PYG_PARAM_BOOL(set, field, def) int64_t field;
#define PYG_PARAM_ENUM(set, field, def, choices) int64_t field;
#define PYG_PARAM_DTYPE(set, field) int64_t field;
#define PYG_PARAM_PER_AXIS(set, field, def) int64_t field[PYG_MAX_DIMS];
#define PYG_PARAM_AXES(set, field) int64_t field[PYG_MAX_DIMS];
#define PYG_PARAMS_END(set)                                                                        \
    }                                                                                              \
    pyg_##set##_params;
#include "ops/params.inc"
#include "ops/params_undef.inc"

enum { PYG_ROPE_NORM, PYG_ROPE_NEOX }; /* order of the rope `mode` choices */

/* ---- infer --------------------------------------------------------------------------------- */

typedef struct pyg_operand {
    pyg_tensor t;     /* t.data is not to be read: at build time there may be none */
    const char *name; /* "" when it has none */
    bool writable;
} pyg_operand;

struct pyg_op_row;

typedef struct pyg_infer {
    const struct pyg_op_row *op;
    const pyg_operand *src[PYG_MAX_SRC]; /* NULL: an optional operand left out */
    const void *params;
    /* filled by infer */
    pyg_tensor out;  /* shape and dtype by pyg_tensor_init; a view sets its own strides too */
    int view_of;     /* operand whose memory `out` shares, -1 (preset) for memory of its own */
    size_t view_off; /* bytes from that operand's first element */
} pyg_infer;

/* Fails with "op: rule: a 'name' is (2, 3) f32, b ...". */
pyg_status pyg_op_fail(const pyg_infer *in, pyg_status code, const char *rule, ...)
    PYG_PRINTF(3, 4);

/* The dtype rule for results: `asked` when given (checked to be a float type), else the common
 * dtype of the operands first..last that are present when they agree on one scalar float type, else
 * F32. */
pyg_status pyg_result_dtype(const pyg_infer *in, int64_t asked, int first, int last,
                            pyg_dtype *out);

/* ---- plan ---------------------------------------------------------------------------------- */

typedef struct pyg_node_io {
    const pyg_tensor *dst;
    const pyg_tensor *src[PYG_MAX_SRC];
    const void *params;
} pyg_node_io;

typedef struct pyg_plan {
    int n_phases; /* preset 1; all tasks of a phase end before the next phase starts; at most 3 */
    int64_t n_tasks[3]; /* preset 1; must not depend on the thread count */
    size_t
        scratch_bytes;   /* preset 0; private to each worker, lost between tasks, 64-byte aligned */
    size_t shared_bytes; /* preset 0; one block for the node, lives through its phases */
    size_t const_bytes;  /* preset 0; filled by init once at compile time, read-only afterwards */
    /* What a run costs, for the profile. */
    double bytes; /* preset to the operands and the result, each moved once */
    double flops; /* preset to one for each element of the largest of them */
} pyg_plan;

/* A plan with everything preset. */
pyg_plan pyg_plan_preset(const pyg_node_io *io);

/* Bytes of the elements, whatever lies between them. */
double pyg_moved_bytes(const pyg_tensor *t);

/* The cost of a copy: what is read and written, no FLOPs. */
void pyg_plan_copy_cost(pyg_plan *plan, double bytes);

/* ---- run ----------------------------------------------------------------------------------- */

/* What a task found wrong with the data it met. The lowest position wins, so the report does not
 * depend on threads. */
typedef struct pyg_fault {
    _Atomic int64_t position; /* -1: none; else the element of the index operand */
    _Atomic int64_t value;
    _Atomic int lock;
} pyg_fault;

/* Records a row index out of range. */
void pyg_fault_record(pyg_fault *fault, int64_t position, int64_t value);

typedef struct pyg_task {
    pyg_node_io io;
    const void *constants;
    char *scratch;
    char *shared;
    pyg_fault *fault;
    int64_t index; /* of n_tasks */
    int64_t n_tasks;
    int phase;
} pyg_task;

/* ---- the row ------------------------------------------------------------------------------- */

typedef enum pyg_param_kind {
    PYG_KIND_I64,
    PYG_KIND_F32,
    PYG_KIND_BOOL,
    PYG_KIND_ENUM,
    PYG_KIND_DTYPE,
    PYG_KIND_PER_AXIS,
    PYG_KIND_AXES,
} pyg_param_kind;

typedef struct pyg_param {
    const char *name;
    pyg_param_kind kind;
    size_t offset;
    double def; /* NaN: required */
    double low, high;
    const char *choices; /* of an enum, "a|b" */
} pyg_param;

typedef struct pyg_op_row {
    const char *name;
    const char *operands;
    uint32_t flags;
    const pyg_param *params;
    int n_params;
    size_t param_bytes;
    pyg_status (*infer)(pyg_infer *in);
    pyg_status (*plan)(const pyg_node_io *io, pyg_plan *plan); /* its caller names the op */
    void (*init)(const pyg_node_io *io, void *constants);
    void (*run)(const pyg_task *task);
    /* parsed from `operands` */
    int n_src;
    int n_required;
    char src_name[PYG_MAX_SRC][16];
} pyg_op_row;

/* The row of op 0..PYG_N_OPS-1, NULL outside. */
const pyg_op_row *pyg_op_get(int op);

/* Refuses parameter values outside the schema's ranges. */
pyg_status pyg_params_check(const pyg_op_row *row, const void *params);

#endif
