#include "ops/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/ops.h"

enum { LAST_AXIS = PYG_MAX_DIMS - 1 };

/* ---- schemas, from params.inc ---- */

#define PYG_PARAMS_BEGIN(set) static const pyg_param set##_schema[] = {
#define PYG_PARAM_I64(set, field, def, lo, hi)                                                     \
    {#field, PYG_KIND_I64, offsetof(pyg_##set##_params, field), def, lo, hi, ""},
#define PYG_PARAM_F32(set, field, def, lo, hi)                                                     \
    {#field, PYG_KIND_F32, offsetof(pyg_##set##_params, field), def, lo, hi, ""},
#define PYG_PARAM_BOOL(set, field, def)                                                            \
    {#field, PYG_KIND_BOOL, offsetof(pyg_##set##_params, field), def, 0, 1, ""},
#define PYG_PARAM_ENUM(set, field, def, choices)                                                   \
    {#field, PYG_KIND_ENUM, offsetof(pyg_##set##_params, field), def, 0, 255, choices},
#define PYG_PARAM_DTYPE(set, field)                                                                \
    {#field, PYG_KIND_DTYPE, offsetof(pyg_##set##_params, field), -1, -1, PYG_N_DTYPES - 1, ""},
#define PYG_PARAM_PER_AXIS(set, field, def)                                                        \
    {#field, PYG_KIND_PER_AXIS, offsetof(pyg_##set##_params, field), def, -9.2e18, 9.2e18, ""},
#define PYG_PARAM_AXES(set, field)                                                                 \
    {#field, PYG_KIND_AXES, offsetof(pyg_##set##_params, field), PYG_REQUIRED, 0, LAST_AXIS, ""},
#define PYG_PARAMS_END(set)                                                                        \
    }                                                                                              \
    ;
#include "ops/params.inc"
#include "ops/params_undef.inc"

/* ---- the table ---- */

#define pyg_none NULL
static pyg_op_row table[PYG_N_OPS] = {
#define PYG_OP(name_, operands_, flags_, params_, infer_, plan_, init_, run_)                      \
    {.name = #name_,                                                                               \
     .operands = operands_,                                                                        \
     .flags = flags_,                                                                              \
     .params = params_##_schema,                                                                   \
     .n_params = (int)(sizeof params_##_schema / sizeof params_##_schema[0]),                      \
     .param_bytes = sizeof(pyg_##params_##_params),                                                \
     .infer = pyg_##infer_,                                                                        \
     .plan = pyg_##plan_,                                                                          \
     .init = pyg_##init_,                                                                          \
     .run = pyg_##run_},
#include "ops/op_table.inc"
#undef PYG_OP
};
#undef pyg_none

#define PYG_PARAMS_BEGIN(set)                                                                      \
    _Static_assert(sizeof(pyg_##set##_params) <= PYG_MAX_PARAM_BYTES, "raise PYG_MAX_PARAM_BYTES");
#define PYG_PARAM_I64(...)
#define PYG_PARAM_F32(...)
#define PYG_PARAM_BOOL(...)
#define PYG_PARAM_ENUM(...)
#define PYG_PARAM_DTYPE(...)
#define PYG_PARAM_PER_AXIS(...)
#define PYG_PARAM_AXES(...)
#define PYG_PARAMS_END(set)
#include "ops/params.inc"
#include "ops/params_undef.inc"

static void parse_operands(pyg_op_row *row) {
    row->n_src = row->n_required = 0;
    for (const char *p = row->operands; *p != '\0';) {
        const size_t n = strcspn(p, " ?#");
        char *name = row->src_name[row->n_src++];
        PYG_DCHECK(n < sizeof row->src_name[0] && row->n_src <= PYG_MAX_SRC);
        memcpy(name, p, n);
        name[n] = '\0';
        p += n;
        const size_t marks = strspn(p, "?#");
        if (memchr(p, '?', marks) == NULL) row->n_required = row->n_src;
        p += marks;
        p += strspn(p, " ");
    }
}

void pyg_ops_init(void) {
    for (int i = 0; i < PYG_N_OPS; i++) parse_operands(&table[i]);
}

const pyg_op_row *pyg_op_get(int op) { return op >= 0 && op < PYG_N_OPS ? &table[op] : NULL; }

/* ---- parameter ranges ---- */

/* The table gives an enum's choices as "a|b"; its values are their numbers. */
static double highest(const pyg_param *p) {
    if (p->kind != PYG_KIND_ENUM) return p->high;
    int n = 0;
    for (const char *c = p->choices; *c != '\0'; c++) n += *c == '|';
    return n;
}

static pyg_status check_number(const pyg_op_row *row, const pyg_param *p, double v) {
    const double high = highest(p);
    if (v >= p->low && v <= high) return PYG_OK; /* false for NaN */
    return pyg_fail(PYG_STATUS_param, "%s: %s must be in [%g, %g], got %g", row->name, p->name,
                    p->low, high, v);
}

pyg_status pyg_params_check(const pyg_op_row *row, const void *params) {
    for (int i = 0; i < row->n_params; i++) {
        const pyg_param *p = &row->params[i];
        const char *field = (const char *)params + p->offset;
        double v;
        if (p->kind == PYG_KIND_F32) {
            float f;
            memcpy(&f, field, sizeof f);
            v = f;
        } else if (p->kind == PYG_KIND_PER_AXIS || p->kind == PYG_KIND_AXES) {
            continue; /* the op's infer knows the meaning */
        } else {
            int64_t n;
            memcpy(&n, field, sizeof n);
            v = (double)n;
        }
        PYG_TRY(check_number(row, p, v));
    }
    return PYG_OK;
}

/* ---- messages ---- */

pyg_status pyg_op_fail(const pyg_infer *in, pyg_status code, const char *rule, ...) {
    char text[900];
    va_list args;
    va_start(args, rule);
    int used = vsnprintf(text, 400, rule, args);
    va_end(args);
    if (used < 0) used = 0;
    if (used > 399) used = 399;
    for (int i = 0; i < in->op->n_src; i++) {
        if (in->src[i] == NULL) continue;
        char shape[160];
        pyg_tensor_describe(&in->src[i]->t, shape, sizeof shape);
        const bool named = in->src[i]->name[0] != '\0';
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %s%s%s%s is %s",
                         i == 0 ? ":" : ",", in->op->src_name[i], named ? " '" : "",
                         in->src[i]->name, named ? "'" : "", shape);
        if (used >= (int)sizeof text) break;
    }
    return pyg_fail(code, "%s: %s", in->op->name, text);
}

pyg_status pyg_result_dtype(const pyg_infer *in, int64_t asked, int first, int last,
                            pyg_dtype *out) {
    if (asked >= 0) {
        *out = (pyg_dtype)asked;
        const uint32_t flags = pyg_dtype_row(*out)->flags;
        if (!(flags & PYG_DT_FLOAT) || (flags & PYG_DT_FIXED))
            return pyg_op_fail(in, PYG_STATUS_dtype, "the result cannot be %s",
                               pyg_dtype_row(*out)->name);
        return PYG_OK;
    }
    *out = in->src[first]->t.dtype;
    bool common = !(pyg_dtype_row(*out)->flags & PYG_DT_BLOCK);
    for (int i = first + 1; i <= last; i++)
        if (in->src[i] != NULL && in->src[i]->t.dtype != *out) common = false;
    if (!common) *out = PYG_DTYPE_f32;
    return PYG_OK;
}

/* ---- plans ---- */

double pyg_moved_bytes(const pyg_tensor *t) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    return (double)pyg_n_elements(t) / row->block * row->bytes;
}

pyg_plan pyg_plan_preset(const pyg_node_io *io) {
    pyg_plan plan = {.n_phases = 1, .n_tasks = {1, 1, 1}};
    plan.bytes = pyg_moved_bytes(io->dst);
    plan.flops = (double)pyg_n_elements(io->dst);
    for (int k = 0; k < PYG_MAX_SRC; k++) {
        if (io->src[k] == NULL) continue;
        const double n = (double)pyg_n_elements(io->src[k]);
        plan.bytes += pyg_moved_bytes(io->src[k]);
        if (n > plan.flops) plan.flops = n;
    }
    return plan;
}

void pyg_plan_copy_cost(pyg_plan *plan, double bytes) {
    plan->bytes = bytes;
    plan->flops = 0;
}

/* ---- faults ---- */

void pyg_fault_record(pyg_fault *fault, int64_t position, int64_t value) {
    while (atomic_exchange_explicit(&fault->lock, 1, memory_order_acquire)) {
    }
    const int64_t at = atomic_load_explicit(&fault->position, memory_order_relaxed);
    if (at < 0 || position < at) {
        atomic_store_explicit(&fault->position, position, memory_order_relaxed);
        atomic_store_explicit(&fault->value, value, memory_order_relaxed);
    }
    atomic_store_explicit(&fault->lock, 0, memory_order_release);
}
