/* pyggml: the public C interface.
 *
 * A graph of tensor operations is built node by node (every wrong shape, dtype or parameter is
 * refused when the node is built), compiled into a program (memory planned, nothing left to
 * allocate), and run many times. Constants (weights, caches) are captured by pointer: the caller
 * keeps their memory alive as long as the graph and the programs made from it. Inputs are copied in
 * by each run, outputs copied out.
 *
 * No function here aborts, exits or prints. Functions that can fail return a pyg_status;
 * pyg_last_message() then holds one sentence for the calling thread.
 *
 * Shapes are ne[], fastest axis first; strides nb[] in bytes; at most 4 axes. */
#ifndef PYGGML_H
#define PYGGML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PYG_MAX_DIMS 4
#define PYG_MAX_SRC 6
#define PYG_MAX_NAME 64

/* ---- status -------------------------------------------------------------------------------- */

typedef enum pyg_status {
#define PYG_STATUS(name, meaning) PYG_STATUS_##name,
#include "core/status_table.inc"
#undef PYG_STATUS
    PYG_OK = PYG_STATUS_ok
} pyg_status;

const char *pyg_status_name(pyg_status status);
const char *pyg_last_message(void);

/* ---- dtypes -------------------------------------------------------------------------------- */

typedef enum pyg_dtype {
#define PYG_DTYPE(name, ...) PYG_DTYPE_##name,
#include "core/dtype_table.inc"
#undef PYG_DTYPE
    PYG_N_DTYPES
} pyg_dtype;

typedef struct pyg_dtype_info {
    const char *name;
    int32_t gguf_id;   /* tensor type id in GGUF files; -1: there is none */
    int32_t block;     /* elements a block */
    int32_t bytes;     /* bytes a block */
    uint32_t flags;    /* PYG_DT_* of core/dtype.h */
    const char *numpy; /* name of the numpy or ml_dtypes dtype, "" for block formats */
} pyg_dtype_info;

/* NULL when out of range. */
const pyg_dtype_info *pyg_dtype_get(int dtype);

/* ---- tensors ------------------------------------------------------------------------------- */

/* A piece of memory seen as an array. Axes from ndim on have ne = 1. Block formats: nb[0] is the
 * bytes of a block, ne[0] a multiple of the block's elements. */
typedef struct pyg_tensor {
    char *data;
    pyg_dtype dtype;
    int32_t ndim; /* 0..4 */
    int64_t ne[PYG_MAX_DIMS];
    size_t nb[PYG_MAX_DIMS];
} pyg_tensor;

/* ---- instruction sets ---------------------------------------------------------------------- */

/* Chooses the kernel table: the best supported set when `name` is NULL or "", else the named one.
 * An unknown or unsupported name is PYG_STATUS_param with a message that lists the choices. Not
 * thread-safe: call it once, before anything runs. */
pyg_status pyg_isa_init(const char *name);
/* Name of the set in use. */
const char *pyg_isa(void);
/* Names of the sets this machine supports, best last; NULL past the end. */
const char *pyg_isa_at(int i);
/* Address of one kernel of a supported set, NULL when set or slot is unknown. For tests and
 * benchmarks. */
void *pyg_kernel_address(const char *isa, const char *slot);
/* Names of kernel slots; NULL past the end. */
const char *pyg_kernel_slot_at(int i);

/* ---- ops ----------------------------------------------------------------------------------- */

/* Prepares the op table; call once, before the first graph. The table itself is in ops/op.h. */
void pyg_ops_init(void);

/* ---- graphs -------------------------------------------------------------------------------- */

typedef struct pyg_graph pyg_graph;

pyg_status pyg_graph_new(pyg_graph **out);
void pyg_graph_free(pyg_graph *graph);
int32_t pyg_graph_n_nodes(const pyg_graph *graph);

/* A slot that each run fills by copy. Names are unique among a graph's inputs. */
pyg_status pyg_graph_input(pyg_graph *graph, const char *name, pyg_dtype dtype, int ndim,
                           const int64_t *ne, int32_t *id);

/* Memory of the caller's, captured by pointer. `writable` 0 makes every write into it an error. Any
 * strides that are multiples of a scalar element's size, as `data` is; blocks lie side by side
 * along the first axis. Elements of writable memory may not overlap. Strides of axes of length 1 do
 * not matter. */
pyg_status pyg_graph_const(pyg_graph *graph, const pyg_tensor *tensor, const char *name,
                           int writable, int32_t *id);

/* Applies op (its number in op_table.inc) to nodes; src[i] = -1 leaves an optional operand out.
 * `params` is the struct of the op's row. */
pyg_status pyg_graph_op(pyg_graph *graph, int op, const int32_t *src, int n_src, const void *params,
                        int32_t *id);

/* Takes back the nodes from number n_nodes on, so that a caller whose last node fails can undo what
 * it made for it. */
pyg_status pyg_graph_truncate(pyg_graph *graph, int32_t n_nodes);

/* Gives a node a name for messages; cut at PYG_MAX_NAME - 1 bytes. */
pyg_status pyg_graph_set_name(pyg_graph *graph, int32_t id, const char *name);

enum { PYG_NODE_INPUT = -1, PYG_NODE_CONST = -2 };

typedef struct pyg_node_info {
    int op; /* or PYG_NODE_INPUT, PYG_NODE_CONST */
    const char *name;
    const pyg_tensor *tensor; /* data is NULL unless it is a constant */
    const int32_t *src;       /* PYG_MAX_SRC ids, -1 for none */
    const void *params;
    int32_t root; /* the node whose memory this one uses: itself unless it is a view */
    int writable;
} pyg_node_info;

pyg_status pyg_graph_node(const pyg_graph *graph, int32_t id, pyg_node_info *out);

/* ---- arenas and programs ------------------------------------------------------------------- */

/* Memory that programs run in, one at a time. Programs that never run together may share one. */
typedef struct pyg_arena pyg_arena;
typedef struct pyg_program pyg_program;

pyg_status pyg_arena_new(pyg_arena **out);
/* Programs hold a reference of their own. */
void pyg_arena_free(pyg_arena *arena);
size_t pyg_arena_bytes(const pyg_arena *arena);

/* Compiles the nodes that the outputs reach, and every write into a constant. n_threads 0 takes the
 * default. arena NULL makes one of its own. PYG_PROGRAM_UNPLANNED (for tests) gives every node
 * memory of its own and runs nothing in place. PYG_PROGRAM_GUARDED (for tests) keeps guard bytes
 * around every piece of memory, fills what a node is about to write with NaN, and looks after each
 * node whether it has written beside its own: PYG_STATUS_internal then. The graph may be freed
 * afterwards. */
enum { PYG_PROGRAM_UNPLANNED = 1, PYG_PROGRAM_GUARDED = 2 };
pyg_status pyg_program_new(const pyg_graph *graph, const int32_t *outputs, int n_outputs,
                           int n_threads, pyg_arena *arena, int flags, pyg_program **out);
void pyg_program_free(pyg_program *program);

int pyg_program_n_inputs(const pyg_program *program);
/* Input i: its id in the graph it came from. Inputs that no output reaches are not listed. */
int32_t pyg_program_input(const pyg_program *program, int i);
int pyg_program_n_threads(const pyg_program *program);
int32_t pyg_program_n_nodes(const pyg_program *program);
/* Bytes of the arena that this program uses, scratch included. */
size_t pyg_program_arena_bytes(const pyg_program *program);

/* Called by the running thread between nodes, and while it waits for its turn, about every
 * PYG_POLL_NS; non-zero stops the run with PYG_STATUS_cancelled. The runs of other threads have
 * their turn meanwhile, and it may run another program itself. */
typedef int (*pyg_poll_fn)(void *ctx);
#define PYG_POLL_NS 50000000

/* Runs. inputs[i] is dense memory of input i's size, outputs[j] receives output j densely.
 * Allocates nothing. PYG_STATUS_graph when the program or its arena is running already. */
pyg_status pyg_program_run(pyg_program *program, const void *const *inputs, void *const *outputs,
                           pyg_poll_fn poll, void *poll_ctx);

/* ---- what a program is made of, and what it costs -------------------------------------------- */

/* A kept node. Times are positions: that of the node itself is its number i; -1 is before the first
 * node, pyg_program_n_nodes() the copying out of the results. */
typedef struct pyg_kept_node {
    int32_t id; /* in the graph it came from */
    int op;     /* or PYG_NODE_INPUT, PYG_NODE_CONST */
    const char *name;
    const pyg_tensor *tensor;
    /* The piece of the arena that its memory is in. Views, and results that took over an operand's
     * memory, are in the same one. */
    int32_t block;       /* -1: a constant; the fields to `last` are 0 then */
    size_t block_offset; /* from the arena's start */
    size_t block_bytes;
    int32_t first; /* position that first writes the block */
    int32_t last;  /* last position that touches it */
    size_t offset; /* of the node's first element, from the arena's start */
    size_t bytes;  /* from its first to its last element's end */
    /* Of one run; 0 for inputs, constants and views, which run nothing. */
    double moved_bytes; /* operands read and result written, each element once */
    double flops;       /* multiplications and additions of products; else one an element */
    int64_t runs;       /* counted since profiling was switched on; 0 when it runs nothing */
    int64_t ns;         /* that they took, all together */
} pyg_kept_node;

/* PYG_STATUS_param when there is no node i. Not while the program runs. */
pyg_status pyg_program_node(const pyg_program *program, int32_t i, pyg_kept_node *out);

typedef struct pyg_program_memory {
    size_t results;   /* placed by lifetime, from the arena's start */
    size_t shared;    /* one block that the phases of a node share */
    size_t scratch;   /* of one thread */
    size_t arena;     /* results + shared + n_threads * scratch */
    size_t constants; /* tables that ops made at compile time, outside the arena */
} pyg_program_memory;

void pyg_program_memory_of(const pyg_program *program, pyg_program_memory *out);

/* Switches the timing of each node on, from zero, or off; what was counted stays readable. Costs
 * nothing while off. PYG_STATUS_graph while the program runs. */
pyg_status pyg_program_profile(pyg_program *program, int on);

/* What n_threads threads reach on this machine, measured in about 100 ms: bytes read and written
 * per second by memcpy over 64 MiB to 64 MiB, and FLOPs per second of the matrix product's inner
 * tile with operands in the first cache. PYG_STATUS_no_memory when the 128 MiB are not there. */
pyg_status pyg_measure_peak(int n_threads, double *bytes_per_s, double *flops_per_s);

/* ---- counters, test hooks ------------------------------------------------------------------ */

/* Since the process started. */
uint64_t pyg_alloc_count(void);
uint64_t pyg_node_count(void);
uint64_t pyg_program_count(void);

/* Allocations not freed yet. */
uint64_t pyg_alloc_live(void);

/* Makes the n-th allocation from now fail; 0 switches the hook off. */
void pyg_alloc_fail_in(int64_t n);

#ifdef __cplusplus
}
#endif

#endif
