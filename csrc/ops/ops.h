/* Prototypes of every function that op_table.inc names. */
#ifndef PYG_OPS_OPS_H
#define PYG_OPS_OPS_H

#include "ops/op.h"

/* One set for each family: a function may serve several rows. */
#define PYG_INFER(name) pyg_status pyg_##name(pyg_infer *in)
#define PYG_PLAN(name) pyg_status pyg_##name(const pyg_node_io *io, pyg_plan *plan)
#define PYG_INIT(name) void pyg_##name(const pyg_node_io *io, void *constants)
#define PYG_RUN(name) void pyg_##name(const pyg_task *task)

/* view.c */
PYG_INFER(infer_view);
PYG_INFER(infer_reshape);
PYG_INFER(infer_permute);
PYG_INFER(infer_transpose);
/* copy.c */
PYG_INFER(infer_cont);
PYG_INFER(infer_cast);
PYG_INFER(infer_cpy);
PYG_PLAN(plan_copy);
PYG_RUN(run_copy);
/* join.c */
PYG_INFER(infer_concat);
PYG_PLAN(plan_concat);
PYG_RUN(run_concat);
PYG_INFER(infer_repeat);
PYG_PLAN(plan_repeat);
PYG_RUN(run_repeat);
PYG_INFER(infer_pad);
PYG_PLAN(plan_pad);
PYG_RUN(run_pad);
/* gather.c */
PYG_INFER(infer_get_rows);
PYG_PLAN(plan_get_rows);
PYG_RUN(run_get_rows);
PYG_INFER(infer_set_rows);
PYG_PLAN(plan_set_rows);
PYG_RUN(run_set_rows);
PYG_INFER(infer_add_id);
PYG_PLAN(plan_add_id);
PYG_RUN(run_add_id);
/* region.c */
PYG_INFER(infer_acc);
PYG_PLAN(plan_acc);
PYG_RUN(run_acc);
PYG_INFER(infer_set);
PYG_PLAN(plan_set);
PYG_RUN(run_set);
/* elementwise.c */
PYG_INFER(infer_binary);
PYG_PLAN(plan_binary);
PYG_RUN(run_add);
PYG_RUN(run_sub);
PYG_RUN(run_mul);
PYG_RUN(run_div);
PYG_INFER(infer_add1);
PYG_INFER(infer_glu);
PYG_PLAN(plan_glu);
PYG_RUN(run_swiglu);
PYG_RUN(run_geglu);
PYG_RUN(run_geglu_erf);
PYG_RUN(run_geglu_quick);
PYG_RUN(run_reglu);
/* unary.c */
PYG_INFER(infer_unary);
PYG_INFER(infer_scale);
PYG_INFER(infer_clamp);
PYG_INFER(infer_leaky_relu);
PYG_PLAN(plan_unary);
PYG_RUN(run_scale);
PYG_RUN(run_clamp);
PYG_RUN(run_leaky_relu);
PYG_RUN(run_sqr);
PYG_RUN(run_sqrt);
PYG_RUN(run_neg);
PYG_RUN(run_abs);
PYG_RUN(run_relu);
PYG_RUN(run_step);
PYG_RUN(run_exp);
PYG_RUN(run_log);
PYG_RUN(run_sin);
PYG_RUN(run_cos);
PYG_RUN(run_tanh);
PYG_RUN(run_sigmoid);
PYG_RUN(run_softplus);
PYG_RUN(run_silu);
PYG_RUN(run_gelu);
PYG_RUN(run_gelu_erf);
PYG_RUN(run_gelu_quick);
/* norm.c */
PYG_INFER(infer_norm);
PYG_PLAN(plan_norm);
PYG_RUN(run_rms_norm);
PYG_RUN(run_norm);
PYG_RUN(run_l2_norm);
/* reduce.c */
PYG_INFER(infer_sum);
PYG_PLAN(plan_sum);
PYG_RUN(run_sum);
PYG_INFER(infer_sum_rows);
PYG_PLAN(plan_sum_rows);
PYG_RUN(run_sum_rows);
PYG_RUN(run_mean);
PYG_INFER(infer_cumsum);
PYG_PLAN(plan_cumsum);
PYG_RUN(run_cumsum);
PYG_INFER(infer_argmax);
PYG_PLAN(plan_argmax);
PYG_RUN(run_argmax);
/* sort.c */
PYG_INFER(infer_argsort);
PYG_PLAN(plan_argsort);
PYG_RUN(run_argsort);
PYG_INFER(infer_top_k);
PYG_PLAN(plan_top_k);
PYG_RUN(run_top_k);
/* rope.c */
PYG_INFER(infer_rope);
PYG_PLAN(plan_rope);
PYG_INIT(init_rope);
PYG_RUN(run_rope);
/* softmax.c */
PYG_INFER(infer_soft_max);
PYG_PLAN(plan_soft_max);
PYG_RUN(run_soft_max);
PYG_INFER(infer_diag_mask_inf);
PYG_PLAN(plan_diag_mask_inf);
PYG_RUN(run_diag_mask_inf);
/* transform.c */
PYG_INFER(infer_fwht);
PYG_PLAN(plan_fwht);
PYG_RUN(run_fwht);
/* matmul.c */
PYG_INFER(infer_mul_mat);
PYG_PLAN(plan_mul_mat);
PYG_RUN(run_mul_mat);
/* matmul_id.c */
PYG_INFER(infer_mul_mat_id);
PYG_PLAN(plan_mul_mat_id);
PYG_RUN(run_mul_mat_id);
/* out_prod.c */
PYG_INFER(infer_out_prod);
PYG_PLAN(plan_out_prod);
PYG_RUN(run_out_prod);
/* attention.c */
PYG_INFER(infer_flash_attn_ext);
PYG_PLAN(plan_flash_attn_ext);
PYG_RUN(run_flash_attn_ext);

#endif
