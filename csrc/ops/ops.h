/* Prototypes of every function that op_table.inc names; several rows may share one. */
#ifndef PYG_OPS_OPS_H
#define PYG_OPS_OPS_H

#include "ops/op.h"

#define PYG_OP(name, operands, flags, params, infer, ...) pyg_status pyg_##infer(pyg_infer *in);
#include "ops/op_table.inc"
#undef PYG_OP

/* Where a row says `none`, each column declares a name of its own, which nothing defines. */
#define pyg_none pyg_no_plan
#define PYG_OP(name, operands, flags, params, infer, plan, ...)                                    \
    pyg_status pyg_##plan(const pyg_node_io *io, pyg_plan *out);
#include "ops/op_table.inc"
#undef PYG_OP
#undef pyg_none

#define pyg_none pyg_no_init
#define PYG_OP(name, operands, flags, params, infer, plan, init, ...)                              \
    void pyg_##init(const pyg_node_io *io, void *constants);
#include "ops/op_table.inc"
#undef PYG_OP
#undef pyg_none

#define pyg_none pyg_no_run
#define PYG_OP(name, operands, flags, params, infer, plan, init, run)                              \
    void pyg_##run(const pyg_task *task);
#include "ops/op_table.inc"
#undef PYG_OP
#undef pyg_none

#endif
