/* The graph: nodes in build order, each made by an op, an input or a constant.
 *
 * A node is an index; operands always have a smaller index, so build order is a valid execution
 * order and every traversal is a loop. Public functions are in pyggml.h. */
#ifndef PYG_GRAPH_GRAPH_H
#define PYG_GRAPH_GRAPH_H

#include "ops/op.h"
#include "pyggml.h"

typedef struct pyg_node {
    pyg_tensor t; /* t.data: constants and views of constants only */
    int op;       /* or PYG_NODE_INPUT, PYG_NODE_CONST */
    int32_t src[PYG_MAX_SRC];
    int32_t root;    /* node that owns the memory */
    size_t root_off; /* bytes from the root's first element */
    size_t bytes;    /* of the root: from its first element to its end */
    bool writable;
    char name[PYG_MAX_NAME];
    _Alignas(8) char params[PYG_MAX_PARAM_BYTES];
} pyg_node;

struct pyg_graph {
    pyg_node *nodes;
    int32_t n_nodes;
    int32_t capacity;
};

#endif
