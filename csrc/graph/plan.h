/* The memory planner: lifetimes in, offsets out. Names no op and no node. */
#ifndef PYG_GRAPH_PLAN_H
#define PYG_GRAPH_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "pyggml.h"

typedef struct pyg_lifetime {
    size_t bytes;
    int32_t first; /* step that first writes it */
    int32_t last;  /* last step that touches it; both ends included */
    size_t offset; /* filled by pyg_plan_offsets, a multiple of 64 */
} pyg_lifetime;

/* Gives lifetimes that overlap in time disjoint memory, biggest first at the lowest offset that is
 * free (greedy by size, Pisarchyk & Lee 2020, arXiv 2001.03288). *total is the arena size. `order`
 * is scratch for n ids. */
pyg_status pyg_plan_offsets(pyg_lifetime *items, int32_t n, int32_t *order, size_t *total);

#endif
