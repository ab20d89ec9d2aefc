/* pyggml: the public C interface.
 *
 * A graph of tensor operations is built node by node (every wrong shape, dtype or parameter is refused when the
 * node is built), compiled into a program (memory planned, nothing left to allocate), and run many times. Constants
 * (weights, caches) are captured by pointer: the caller keeps their memory alive as long as the graph and
 * the programs made from it. Inputs are copied in by each run, outputs copied out.
 *
 * No function here aborts, exits or prints. Functions that can fail return a pyg_status; pyg_last_message() then
 * holds one sentence for the calling thread.
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
    int32_t gguf_id; /* tensor type id in GGUF files */
    int32_t block;   /* elements a block */
    int32_t bytes;   /* bytes a block */
    uint32_t flags;  /* PYG_DT_* of core/dtype.h */
    const char *numpy; /* name of the numpy or ml_dtypes dtype, "" for block formats */
} pyg_dtype_info;

/* NULL when out of range. */
const pyg_dtype_info *pyg_dtype_get(int dtype);

/* ---- tensors ------------------------------------------------------------------------------- */

/* A piece of memory seen as an array. Axes from ndim on have ne = 1. Block formats: nb[0] is the bytes of a block, ne[0] a
 * multiple of the block's elements. */
typedef struct pyg_tensor {
    char *data;
    pyg_dtype dtype;
    int32_t ndim; /* 0..4 */
    int64_t ne[PYG_MAX_DIMS];
    size_t nb[PYG_MAX_DIMS];
} pyg_tensor;

/* ---- instruction sets ---------------------------------------------------------------------- */

/* Chooses the kernel table: the best supported set when `name` is NULL or "", else the named one. An unknown or
 * unsupported name is PYG_STATUS_param with a message that lists the choices. Not thread-safe: call it once,
 * before anything runs. */
pyg_status pyg_isa_init(const char *name);
/* Name of the set in use. */
const char *pyg_isa(void);
/* Names of the sets this machine supports, best last; NULL past the end. */
const char *pyg_isa_at(int i);
/* Address of one kernel of a supported set, NULL when set or slot is unknown. For tests and benchmarks. */
void *pyg_kernel_address(const char *isa, const char *slot);
/* Names of kernel slots; NULL past the end. */
const char *pyg_kernel_slot_at(int i);

#ifdef __cplusplus
}
#endif

#endif
