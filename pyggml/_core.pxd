"""C declarations of csrc/pyggml.h and csrc/ops/op.h that _core.pyx uses."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "pyggml.h" nogil:
    enum:
        PYG_MAX_DIMS
        PYG_MAX_SRC
        PYG_NODE_INPUT
        PYG_NODE_CONST

    ctypedef int pyg_status
    ctypedef int pyg_dtype
    int PYG_OK
    int PYG_N_DTYPES
    int PYG_STATUS_cancelled

    const char *pyg_status_name(pyg_status status)
    const char *pyg_last_message()

    ctypedef struct pyg_dtype_info:
        const char *name
        int32_t gguf_id
        int32_t block
        int32_t bytes
        uint32_t flags
        const char *numpy

    const pyg_dtype_info *pyg_dtype_get(int dtype)

    ctypedef struct pyg_tensor:
        char *data
        pyg_dtype dtype
        int32_t ndim
        int64_t ne[4]
        size_t nb[4]

    pyg_status pyg_isa_init(const char *name)
    const char *pyg_isa()
    const char *pyg_isa_at(int i)
    void *pyg_kernel_address(const char *isa, const char *slot)
    const char *pyg_kernel_slot_at(int i)

    void pyg_ops_init()

    ctypedef struct pyg_graph:
        pass
    pyg_status pyg_graph_new(pyg_graph **out)
    void pyg_graph_free(pyg_graph *graph)
    int32_t pyg_graph_n_nodes(const pyg_graph *graph)
    pyg_status pyg_graph_input(pyg_graph *graph, const char *name, pyg_dtype dtype, int ndim,
                               const int64_t *ne, int32_t *id)
    pyg_status pyg_graph_const(pyg_graph *graph, const pyg_tensor *tensor, const char *name,
                               int writable, int32_t *id)
    pyg_status pyg_graph_op(pyg_graph *graph, int op, const int32_t *src, int n_src,
                            const void *params, int32_t *id)
    pyg_status pyg_graph_truncate(pyg_graph *graph, int32_t n_nodes)
    pyg_status pyg_graph_set_name(pyg_graph *graph, int32_t id, const char *name)

    ctypedef struct pyg_node_info:
        int op
        const char *name
        const pyg_tensor *tensor
        const int32_t *src
        const void *params
        int32_t root
        int writable
    pyg_status pyg_graph_node(const pyg_graph *graph, int32_t id, pyg_node_info *out)

    ctypedef struct pyg_arena:
        pass
    ctypedef struct pyg_program:
        pass
    pyg_status pyg_arena_new(pyg_arena **out)
    void pyg_arena_free(pyg_arena *arena)
    size_t pyg_arena_bytes(const pyg_arena *arena)
    enum:
        PYG_PROGRAM_UNPLANNED
        PYG_PROGRAM_GUARDED
    pyg_status pyg_program_new(const pyg_graph *graph, const int32_t *outputs, int n_outputs,
                               int n_threads, pyg_arena *arena, int flags, pyg_program **out)
    void pyg_program_free(pyg_program *program)
    int pyg_program_n_inputs(const pyg_program *program)
    int32_t pyg_program_input(const pyg_program *program, int i)
    int pyg_program_n_threads(const pyg_program *program)
    int32_t pyg_program_n_nodes(const pyg_program *program)
    size_t pyg_program_arena_bytes(const pyg_program *program)
    ctypedef int (*pyg_poll_fn)(void *ctx) noexcept
    pyg_status pyg_program_run(pyg_program *program, const void *const *inputs,
                               void *const *outputs, pyg_poll_fn poll, void *poll_ctx)

    ctypedef struct pyg_kept_node:
        int32_t id
        int op
        const char *name
        const pyg_tensor *tensor
        int32_t block
        size_t block_offset
        size_t block_bytes
        int32_t first
        int32_t last
        size_t offset
        size_t bytes
        double moved_bytes
        double flops
        int64_t runs
        int64_t ns
    pyg_status pyg_program_node(const pyg_program *program, int32_t i, pyg_kept_node *out)

    ctypedef struct pyg_program_memory:
        size_t results
        size_t shared
        size_t scratch
        size_t arena
        size_t constants
    void pyg_program_memory_of(const pyg_program *program, pyg_program_memory *out)
    pyg_status pyg_program_profile(pyg_program *program, int on)
    pyg_status pyg_measure_peak(int n_threads, double *bytes_per_s, double *flops_per_s)

    uint64_t pyg_alloc_count()
    uint64_t pyg_alloc_live()
    uint64_t pyg_node_count()
    uint64_t pyg_program_count()
    void pyg_alloc_fail_in(int64_t n)


cdef extern from "core/alloc.h" nogil:
    size_t pyg_memory_room()


cdef extern from "core/tensor.h" nogil:
    pyg_status pyg_tensor_init(pyg_tensor *t, pyg_dtype dtype, int ndim, const int64_t *ne)
    size_t pyg_extent_bytes(const pyg_tensor *t)


cdef extern from "kernels/kernels.h" nogil:
    ctypedef void (*pyg_to_f32_fn)(const void *src, float *dst, int64_t n) noexcept
    ctypedef void (*pyg_from_f32_fn)(const float *src, void *dst, int64_t n) noexcept
    pyg_to_f32_fn pyg_to_f32(pyg_dtype dtype)
    pyg_from_f32_fn pyg_from_f32(pyg_dtype dtype)


cdef extern from "thread/fpmode.h" nogil:
    uint64_t pyg_fp_enter()
    void pyg_fp_leave(uint64_t old)


cdef extern from "thread/pool.h" nogil:
    enum:
        PYG_MAX_NAME
        PYG_MAX_THREADS
    int pyg_pool_default_threads()
    int pyg_pool_workers()


cdef extern from "ops/op.h" nogil:
    enum:
        PYG_N_OPS
        PYG_MAX_PARAM_BYTES
        PYG_OP_VIEW
        PYG_OP_WRITE
        PYG_KIND_I64
        PYG_KIND_F32
        PYG_KIND_BOOL
        PYG_KIND_ENUM
        PYG_KIND_DTYPE
        PYG_KIND_PER_AXIS
        PYG_KIND_AXES

    ctypedef struct pyg_param:
        const char *name
        int kind
        size_t offset
        double default "def"
        double low
        double high
        const char *choices

    ctypedef struct pyg_op_row:
        const char *name
        const char *operands
        uint32_t flags
        const pyg_param *params
        int n_params
        size_t param_bytes
        int n_src
        int n_required
    const pyg_op_row *pyg_op_get(int op)
