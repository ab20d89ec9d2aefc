/* The generic spine: every slot in plain C, for any CPU; the measure of the other spines. */
#include "kernels/kernels.h"

#define K(slot) slot##__generic

#include "kernels/simd/generic.h"

#include "kernels/body/convert.h"
#include "kernels/body/direct.h"
#include "kernels/body/dot.h"
#include "kernels/body/dot_f8_plain.h"
#include "kernels/body/elementwise.h"
#include "kernels/body/fwht.h"
#include "kernels/body/gemm_tile.h"
#include "kernels/body/reduce.h"
#include "kernels/body/rope.h"
#include "kernels/body/softmax.h"
#include "kernels/body/superblocks.h"
#include "kernels/body/unary.h"

const pyg_kernel_table pyg_kernels_generic = {
    .none = 0,
#define PYG_KERNEL(slot, ret, args) .slot = K(slot),
#include "kernels/kernel_table.inc"
#undef PYG_KERNEL
};

void pyg_fill_generic(pyg_kernel_table *table) { *table = pyg_kernels_generic; }
