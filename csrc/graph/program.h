/* The compiled form of a graph, shared by compile.c (makes it) and exec.c (runs it). */
#ifndef PYG_GRAPH_PROGRAM_H
#define PYG_GRAPH_PROGRAM_H

#include <stdatomic.h>

#include "graph/graph.h"
#include "graph/plan.h"

struct pyg_arena {
    char *base;
    size_t bytes;
    atomic_int refs;
    atomic_int busy; /* held by a running or compiling program */
};

/* A kept node. Where its bytes are: a constant keeps its own address, the rest moves with the
 * arena. */
typedef struct pyg_slot {
    pyg_tensor t;
    size_t offset; /* from the arena's base; PYG_NOT_IN_ARENA for constants */
    int32_t life;  /* index into the program's lives, -1 for constants */
    int32_t node;  /* in the graph it came from */
    int32_t step;  /* -1: it does not run */
    int op;        /* or PYG_NODE_INPUT, PYG_NODE_CONST */
    char name[PYG_MAX_NAME];
} pyg_slot;

#define PYG_NOT_IN_ARENA SIZE_MAX

/* One node that runs. */
typedef struct pyg_step {
    const pyg_op_row *op;
    pyg_node_io io; /* points into slots and params */
    pyg_plan plan;
    size_t const_off;
    int32_t slot;
    _Alignas(8) char params[PYG_MAX_PARAM_BYTES];
} pyg_step;

struct pyg_program {
    pyg_slot *slots; /* one a kept node, in build order */
    int32_t n_slots;
    pyg_lifetime *lives;
    int32_t n_lives;
    pyg_step *steps;
    int32_t n_steps;
    int32_t *input_slots;
    int32_t *input_ids; /* in the graph it came from */
    int n_inputs;
    int32_t *output_slots;
    int n_outputs;
    char *constants; /* what the init functions filled */
    pyg_arena *arena;
    char *bound; /* the base that slots' data pointers were computed from */
    size_t scratch_off;
    size_t scratch_stride; /* bytes a worker */
    size_t shared_off;
    size_t arena_bytes;
    size_t const_bytes;
    int64_t *step_ns; /* time of each step in runs_timed runs; NULL: never profiled, or no steps */
    int64_t runs_timed;
    bool profiling;
    bool guarded; /* see guard.c */
    int n_threads;
    atomic_int running;
};

/* Grows the arena; PYG_STATUS_graph while a program runs in it. */
pyg_status pyg_arena_reserve(pyg_arena *arena, size_t bytes);

/* Nanoseconds of a clock that only goes forward. */
int64_t pyg_now_ns(void);

/* Points every slot into the arena. */
void pyg_program_bind(pyg_program *program);

/* ---- guard.c, of guarded programs ---- */

/* Bytes in front of each piece of the arena and behind it that no step may change; a multiple of
 * the alignment. */
#define PYG_GUARD ((size_t)64)

/* Fills the arena with NaN, before the inputs come in. */
void pyg_guard_start(const pyg_program *program);
/* Fills what the step is about to write, and its scratch memory, with NaN. */
void pyg_guard_before(const pyg_program *program, const pyg_step *step);
/* PYG_STATUS_internal when the step has written beside what is its own. */
pyg_status pyg_guard_after(const pyg_program *program, const pyg_step *step);

#endif
