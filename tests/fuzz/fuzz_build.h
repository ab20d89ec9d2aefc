/* A random graph out of bytes: ops, operands and parameters from the tables, so that a new row is
 * met without a line here. */
#ifndef PYG_TESTS_FUZZ_BUILD_H
#define PYG_TESTS_FUZZ_BUILD_H

#include "fuzz.h"
#include "graph/graph.h"

enum { FUZZ_MAX_LEAVES = 32, FUZZ_MAX_POOL = 48, FUZZ_MAX_BYTES = 1 << 16 };

/* An input or a constant; its memory is as large as the tensor, to the byte. */
typedef struct fuzz_leaf {
    int32_t id;
    bool is_input, writable;
    size_t bytes;
    char *data, *saved; /* what a run starts from */
} fuzz_leaf;

typedef struct fuzz_graph {
    fuzz_bytes *bytes;
    pyg_graph *g;
    fuzz_leaf leaves[FUZZ_MAX_LEAVES];
    int n_leaves;
    int32_t pool[FUZZ_MAX_POOL]; /* nodes small enough to be used and run */
    int n_pool;
    int n_ops;
    bool failed; /* an allocation was refused */
} fuzz_graph;

extern uint64_t fuzz_op_built[PYG_N_OPS], fuzz_op_tried[PYG_N_OPS];
extern uint64_t fuzz_aliases; /* constants made in the memory of another */

/* Adds leaves and ops until the bytes or the room end. */
void fuzz_build(fuzz_graph *f, fuzz_bytes *b);
void fuzz_free(fuzz_graph *f);

const pyg_node *fuzz_node(const fuzz_graph *f, int32_t id);

#endif
