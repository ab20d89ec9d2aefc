# cython: language_level=3, binding=True, freethreading_compatible=True
"""The only Cython of pyggml: graphs, programs and tables of the C runtime, wrapped thinly.

Everything here speaks ids, tuples and buffers; pyggml.dtypes, pyggml.tensor and pyggml.graph give
them their faces. Shapes come and go in numpy order and are turned round once, in this file.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

import os
import threading
from collections import namedtuple
from itertools import islice
from operator import index

from pyggml.checks import as_bool, as_int, shown
from pyggml.errors import (
    STATUS,
    GraphError,
    InstructionSetError,
    InternalError,
    ParameterError,
    PyggmlError,
    ShapeError,
)

MAX_DIMS = PYG_MAX_DIMS
MAX_THREADS = PYG_MAX_THREADS
MAX_OUTPUTS = 1 << 20
MAX_NAME = PYG_MAX_NAME - 1  # bytes
NODE_INPUT = PYG_NODE_INPUT
NODE_CONST = PYG_NODE_CONST
UNPLANNED = PYG_PROGRAM_UNPLANNED
GUARDED = PYG_PROGRAM_GUARDED


cdef object status_error(pyg_status status):
    name = pyg_status_name(status).decode()
    message = pyg_last_message().decode("utf-8", "replace")
    return STATUS.get(name, InternalError)(message)


cdef int check(pyg_status status) except -1 nogil:
    if status == PYG_OK:
        return 0
    with gil:
        raise status_error(status)


# ---- tables ----------------------------------------------------------------------------------


def dtype_table():
    """One tuple (name, gguf_id, block, bytes, flags, numpy name) a dtype, in table order."""
    rows = []
    for i in range(PYG_N_DTYPES):
        row = pyg_dtype_get(i)
        rows.append((row.name.decode(), row.gguf_id, row.block, row.bytes, row.flags,
                     row.numpy.decode()))
    return tuple(rows)


KINDS = {
    PYG_KIND_I64: "i64",
    PYG_KIND_F32: "f32",
    PYG_KIND_BOOL: "bool",
    PYG_KIND_ENUM: "enum",
    PYG_KIND_DTYPE: "dtype",
    PYG_KIND_PER_AXIS: "per_axis",
    PYG_KIND_AXES: "axes",
}


cdef object param_dict(const pyg_param *p):
    return {
        "name": p.name.decode(),
        "kind": KINDS[p.kind],
        "default": None if isnan(p.default) else p.default,
        "low": p.low,
        "high": p.high,
        "choices": tuple(p.choices.decode().split("|")) if p.choices[0] else (),
    }


def op_table():
    """One dict a row of csrc/ops/op_table.inc: name, operands and which of them may be left out
    (optional) or are row numbers (index), view, write, params."""
    rows = []
    for i in range(PYG_N_OPS):
        row = pyg_op_get(i)
        operands = row.operands.decode().split()
        rows.append({
            "name": row.name.decode(),
            "operands": tuple(o.rstrip("?#") for o in operands),
            "optional": tuple(o.rstrip("?#") for o in operands if "?" in o),
            "index": tuple(o.rstrip("?#") for o in operands if "#" in o),
            "view": bool(row.flags & PYG_OP_VIEW),
            "write": bool(row.flags & PYG_OP_WRITE),
            "params": tuple(param_dict(&row.params[k]) for k in range(row.n_params)
                            if row.params[k].name != b"unused"),
        })
    return tuple(rows)


def isa():
    """Name of the instruction set whose kernels are in use."""
    return pyg_isa().decode()


def isas():
    """Names of the instruction sets that this machine supports, best last."""
    names = []
    while pyg_isa_at(len(names)) != NULL:
        names.append(pyg_isa_at(len(names)).decode())
    return tuple(names)


def kernel_slots():
    """Names of the kernel slots, in the table's order."""
    names = []
    while pyg_kernel_slot_at(len(names)) != NULL:
        names.append(pyg_kernel_slot_at(len(names)).decode())
    return tuple(names)


def kernel_address(str isa not None, str slot not None):
    """Address of one kernel, for tests and benchmarks that call it through ctypes."""
    cdef void *p = pyg_kernel_address(isa.encode(), slot.encode())
    if p == NULL:
        raise ParameterError(f"no kernel {shown(slot)} in the instruction set {shown(isa)}")
    return <size_t>p


def counters():
    """C allocations, graph nodes and programs made so far, and the allocations still live."""
    return {
        "allocations": pyg_alloc_count(),
        "live": pyg_alloc_live(),
        "nodes": pyg_node_count(),
        "programs": pyg_program_count(),
    }


def alloc_fail_in(int64_t n):
    """Makes the n-th C allocation from now fail; 0 switches that off. For tests."""
    pyg_alloc_fail_in(n)


def memory_room():
    """Bytes that can still be allocated, by the machine and the cgroup."""
    return pyg_memory_room()


def default_threads():
    """Threads that a program uses when none are asked for."""
    return pyg_pool_default_threads()


def pool_workers():
    """Worker threads that the pool has running in this process."""
    return pyg_pool_workers()


# ---- conversion of plain buffers ---------------------------------------------------------------


cdef int64_t convert_length(Py_buffer *src, Py_buffer *dst, pyg_dtype dtype, bint decode) except -1:
    row = pyg_dtype_get(dtype)
    if row == NULL:
        raise ParameterError(f"there is no dtype number {dtype}")
    cdef Py_buffer *f32 = dst if decode else src
    cdef Py_buffer *other = src if decode else dst
    cdef int64_t n = f32.len // 4
    if n % row.block != 0 or f32.len % 4 != 0 or other.len != n // row.block * row.bytes:
        raise ShapeError(f"{row.name.decode()}: {f32.len} bytes of f32 do not match {other.len}")
    cdef size_t unit = row.bytes if row.block == 1 else 1
    if n > 0 and (<size_t>f32.buf % 4 != 0 or <size_t>other.buf % unit != 0):
        raise ParameterError(f"{row.name.decode()}: the memory is not aligned")
    return n


def to_f32(int dtype, src, dst):
    """Decodes the buffer src, dense elements of dtype, into the F32 buffer dst."""
    cdef Py_buffer s, d
    cdef pyg_to_f32_fn fn
    cdef uint64_t fp
    PyObject_GetBuffer(src, &s, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(dst, &d, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            n = convert_length(&s, &d, dtype, True)
            fn = pyg_to_f32(dtype)
            if fn == NULL:
                raise ParameterError(f"{pyg_dtype_get(dtype).name.decode()} has no decoder")
            fp = pyg_fp_enter()  # the host may have denormals switched off
            fn(s.buf, <float *>d.buf, n)
            pyg_fp_leave(fp)
        finally:
            PyBuffer_Release(&d)
    finally:
        PyBuffer_Release(&s)


def from_f32(int dtype, src, dst):
    """Encodes the F32 buffer src into dst, dense elements of dtype."""
    cdef Py_buffer s, d
    cdef pyg_from_f32_fn fn
    cdef uint64_t fp
    PyObject_GetBuffer(src, &s, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(dst, &d, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            n = convert_length(&s, &d, dtype, False)
            fn = pyg_from_f32(dtype)
            if fn == NULL:
                raise ParameterError(f"{pyg_dtype_get(dtype).name.decode()} has no encoder")
            fp = pyg_fp_enter()
            fn(<const float *>s.buf, d.buf, n)
            pyg_fp_leave(fp)
        finally:
            PyBuffer_Release(&d)
    finally:
        PyBuffer_Release(&s)


# ---- graphs ------------------------------------------------------------------------------------


cdef int read_shape(shape, int64_t *ne) except -1:
    """Turns a numpy shape into ne order; returns ndim."""
    cdef Py_ssize_t ndim = len(shape)
    if ndim > PYG_MAX_DIMS:
        raise ShapeError(f"shape: at most {PYG_MAX_DIMS} axes, got {ndim}")
    for i in range(ndim):
        try:
            ne[i] = index(shape[ndim - 1 - i])
        except OverflowError:
            raise ShapeError(f"shape {tuple(shape)}: an axis passes 64 bits") from None
    return <int>ndim


cdef bytes encode_name(str name, str what):
    raw = name.encode()
    if b"\0" in raw:
        raise ParameterError(f"{what}: a name has no NUL")
    return raw


cdef object tensor_shape(const pyg_tensor *t):
    return tuple([t.ne[i] for i in range(t.ndim - 1, -1, -1)])


include "_params.pxi"
include "_dlpack.pxi"
include "_graph.pxi"


# ---- programs ----------------------------------------------------------------------------------


@cython.final
cdef class Arena:
    """Memory that several programs use in turn."""

    cdef pyg_arena *ptr

    def __cinit__(self):
        self.ptr = NULL
        check(pyg_arena_new(&self.ptr))

    def __dealloc__(self):
        pyg_arena_free(self.ptr)

    @property
    def nbytes(self):
        """Bytes that the arena holds now."""
        return pyg_arena_bytes(self.ptr)


cdef int poll_signals(void *ctx) noexcept nogil:
    with gil:
        program = <Program>ctx
        try:
            PyErr_CheckSignals()
        except BaseException as e:
            program.interrupt = e
            return 1
        return 0


@cython.final
cdef class Program:
    """A pyg_program, and the owners of the constants it reads."""

    cdef pyg_program *ptr
    cdef readonly tuple inputs     # ids, in the order that run() wants them
    cdef tuple owners              # the constants' memory
    cdef object interrupt          # exception that a signal handler raised during the run
    cdef object lock
    cdef Py_buffer *buffers        # one an input, then one an output
    cdef const void **in_data
    cdef void **out_data
    cdef Py_ssize_t n_in, n_out
    cdef list sizes                # bytes of each input, then of each output

    def __cinit__(self, Graph graph not None, outputs, int threads, Arena arena, int flags=0):
        cdef int32_t *ids = NULL
        self.ptr = NULL
        self.lock = threading.Lock()
        self.n_out = len(outputs)
        if self.n_out > MAX_OUTPUTS:
            raise ParameterError(f"compile: at most {MAX_OUTPUTS} outputs, got {self.n_out}")
        ends = [index(n) for n in outputs]  # read once: a sequence may answer otherwise later
        self.n_out = len(ends)
        ids = <int32_t *>PyMem_Calloc(max(self.n_out, 1), sizeof(int32_t))
        if ids == NULL:
            raise MemoryError
        try:
            for i in range(self.n_out):
                ids[i] = ends[i]
            with graph.lock:
                check(pyg_program_new(graph.ptr, ids, <int>self.n_out, threads,
                                      arena.ptr if arena is not None else NULL, flags, &self.ptr))
                self.owners = tuple(graph.owners)
                self.n_in = pyg_program_n_inputs(self.ptr)
                self.inputs = tuple([pyg_program_input(self.ptr, <int>i)
                                     for i in range(self.n_in)])
                self.sizes = [self.node_bytes(graph, n) for n in (*self.inputs, *ends)]
        finally:
            PyMem_Free(ids)
        self.buffers = <Py_buffer *>PyMem_Calloc(self.n_in + self.n_out, sizeof(Py_buffer))
        self.in_data = <const void **>PyMem_Calloc(max(self.n_in, 1), sizeof(void *))
        self.out_data = <void **>PyMem_Calloc(max(self.n_out, 1), sizeof(void *))
        if self.buffers == NULL or self.in_data == NULL or self.out_data == NULL:
            raise MemoryError

    def __dealloc__(self):
        pyg_program_free(self.ptr)
        PyMem_Free(self.buffers)
        PyMem_Free(self.in_data)
        PyMem_Free(self.out_data)

    cdef object node_bytes(self, Graph graph, int32_t node):
        cdef pyg_node_info info
        cdef pyg_tensor dense
        check(pyg_graph_node(graph.ptr, node, &info))
        check(pyg_tensor_init(&dense, info.tensor.dtype, info.tensor.ndim, info.tensor.ne))
        return pyg_extent_bytes(&dense)

    @property
    def threads(self):
        """Threads that a run uses."""
        return pyg_program_n_threads(self.ptr)

    @property
    def n_nodes(self):
        """Nodes that were kept."""
        return pyg_program_n_nodes(self.ptr)

    @property
    def arena_bytes(self):
        """Bytes of arena that a run uses."""
        return pyg_program_arena_bytes(self.ptr)

    def nodes(self):
        """One dict a kept node, in running order: the fields of pyg_kept_node, `dtype` a number."""
        self.take()  # a run writes the times
        try:
            return self.kept()
        finally:
            self.lock.release()

    cdef list kept(self):
        cdef pyg_kept_node node
        records = []
        for i in range(pyg_program_n_nodes(self.ptr)):
            check(pyg_program_node(self.ptr, <int32_t>i, &node))
            records.append({
                "id": node.id, "op": node.op, "name": node.name.decode("utf-8", "replace"),
                "shape": tensor_shape(node.tensor), "dtype": <int>node.tensor.dtype,
                "block": node.block, "block_offset": node.block_offset,
                "block_bytes": node.block_bytes, "first": node.first, "last": node.last,
                "offset": node.offset, "bytes": node.bytes,
                "moved_bytes": node.moved_bytes, "flops": node.flops,
                "runs": node.runs, "ns": node.ns,
            })
        return records

    def memory(self):
        """The fields of pyg_program_memory."""
        cdef pyg_program_memory memory
        pyg_program_memory_of(self.ptr, &memory)
        return {"results": memory.results, "shared": memory.shared, "scratch": memory.scratch,
                "arena": memory.arena, "constants": memory.constants}

    def run(self, inputs, outputs):
        """Runs once: dense buffers in, dense writable buffers out, without the GIL."""
        self.take()
        try:
            self.run_taken(inputs, outputs, 1, False)
        finally:
            self.lock.release()

    def profile(self, inputs, outputs, int runs):
        """Runs once to warm up, then `runs` times with each node timed; returns nodes()."""
        if runs < 1:
            raise ParameterError(f"profile: at least one run is needed, got {shown(runs)}")
        self.take()
        try:
            self.run_taken(inputs, outputs, runs, True)
            return self.kept()
        finally:
            pyg_program_profile(self.ptr, 0)
            self.lock.release()

    cdef int take(self) except -1:
        if not self.lock.acquire(blocking=False):
            raise GraphError("the program is running already")
        return 0

    cdef int run_taken(self, inputs, outputs, int runs, bint timed) except -1:
        """Runs, while this thread holds the lock."""
        cdef pyg_status status = PYG_OK
        held = 0
        try:
            if len(inputs) != self.n_in or len(outputs) != self.n_out:
                raise ParameterError(f"{self.n_in} inputs and {self.n_out} outputs expected, "
                                     f"got {len(inputs)} and {len(outputs)}")
            self.interrupt = None
            for i in range(self.n_in + self.n_out):
                out = i >= self.n_in
                PyObject_GetBuffer(outputs[i - self.n_in] if out else inputs[i], &self.buffers[i],
                                   PyBUF_WRITABLE if out else PyBUF_SIMPLE)
                held += 1
                if self.buffers[i].len != self.sizes[i]:
                    raise ShapeError(f"{'output' if out else 'input'} {i - out * self.n_in}: "
                                     f"{self.buffers[i].len} bytes, {self.sizes[i]} expected")
                if out:
                    self.out_data[i - self.n_in] = self.buffers[i].buf
                else:
                    self.in_data[i] = self.buffers[i].buf
            with nogil:
                if timed:
                    status = self.run_once()
                    if status == PYG_OK:
                        status = pyg_program_profile(self.ptr, 1)
                while status == PYG_OK and runs > 0:
                    status = self.run_once()
                    runs -= 1
            if status == PYG_STATUS_cancelled and self.interrupt is not None:
                raise self.interrupt
            check(status)
        finally:
            for i in range(held):
                PyBuffer_Release(&self.buffers[i])
            self.interrupt = None
        return 0

    cdef pyg_status run_once(self) noexcept nogil:
        return pyg_program_run(self.ptr, self.in_data, self.out_data, poll_signals, <void *>self)


def measure_peak(int threads):
    """(bytes per second of a copy, FLOPs per second of an inner tile); see pyg_measure_peak."""
    cdef double n_bytes, flops
    cdef pyg_status status
    with nogil:
        status = pyg_measure_peak(threads, &n_bytes, &flops)
    check(status)
    return n_bytes, flops


# ---- start-up ----------------------------------------------------------------------------------


def _start():
    pyg_ops_init()
    name = os.environ.get("PYGGML_ISA", "")
    try:
        check(pyg_isa_init(name.encode("utf-8", "surrogateescape")))
    except PyggmlError as e:
        raise InstructionSetError(f"PYGGML_ISA={name}: {e}") from None


_start()
