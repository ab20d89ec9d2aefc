# Included by _core.pyx: DLPack capsules, made and taken. Layouts as in dlpack.h, ABI version 1.

from cpython.pycapsule cimport (
    PyCapsule_GetPointer,
    PyCapsule_IsValid,
    PyCapsule_New,
    PyCapsule_SetName,
)
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uintptr_t


cdef extern from "<stdint.h>":
    const uintptr_t UINTPTR_MAX


cdef extern from "Python.h" nogil:
    const Py_ssize_t PY_SSIZE_T_MAX
    int Py_IsInitialized()
    int PyBuffer_FillInfo(Py_buffer *view, object exporter, void *buf, Py_ssize_t len,
                          int readonly, int flags) except -1 with gil


cdef struct DLTensor:
    void *data
    int32_t device_type
    int32_t device_id
    int32_t ndim
    uint8_t code
    uint8_t bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides  # in elements; NULL: dense
    uint64_t byte_offset

cdef struct DLManaged:
    DLTensor tensor
    void *owner
    void (*deleter)(DLManaged *self) noexcept nogil

cdef struct DLManagedVersioned:
    uint32_t major
    uint32_t minor
    void *owner
    void (*deleter)(DLManagedVersioned *self) noexcept nogil
    uint64_t flags
    DLTensor tensor

cdef enum:
    DL_CPU = 1
    DL_READ_ONLY = 1
    DL_IS_COPIED = 2

# A capsule points to the name it is given: these live as long as the module.
cdef const char *PLAIN = "dltensor"
cdef const char *USED_PLAIN = "used_dltensor"
cdef const char *VERSIONED = "dltensor_versioned"
cdef const char *USED_VERSIONED = "used_dltensor_versioned"

# No process has more addresses, so that more than this is a mistake of the producer.
cdef object MOST_BYTES = min(PY_SSIZE_T_MAX, 1 << 56)

DLPACK_VERSION = (1, 1)  # the first with 8-bit floats

cdef str USED_UP = "the capsule is used up: it can be taken once"
cdef object dlpack_lock = threading.Lock()  # two threads may not take one capsule


# ---- out ---------------------------------------------------------------------------------------


cdef struct DLExport:
    DLManaged plain  # one of the two is handed out
    DLManagedVersioned versioned
    Py_buffer view   # keeps the memory
    int64_t shape[PYG_MAX_DIMS]
    int64_t strides[PYG_MAX_DIMS]


cdef void end_export(DLExport *e) noexcept nogil:
    if not Py_IsInitialized():
        return  # a library that outlives Python: the memory goes with the process
    with gil:
        PyBuffer_Release(&e.view)
        PyMem_Free(e)


cdef void delete_plain(DLManaged *self) noexcept nogil:
    if self != NULL:
        end_export(<DLExport *>self.owner)


cdef void delete_versioned(DLManagedVersioned *self) noexcept nogil:
    if self != NULL:
        end_export(<DLExport *>self.owner)


# Whoever takes a capsule renames it, and calls the deleter; nobody took one that has its name.
cdef void drop_plain(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, PLAIN):
        delete_plain(<DLManaged *>PyCapsule_GetPointer(capsule, PLAIN))


cdef void drop_versioned(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, VERSIONED):
        delete_versioned(<DLManagedVersioned *>PyCapsule_GetPointer(capsule, VERSIONED))


cdef object fill_export(DLExport *e, shape, int code, int bits, bint versioned, bint copied):
    cdef int64_t ne[PYG_MAX_DIMS]
    cdef DLTensor *t = &e.versioned.tensor
    cdef int64_t step = 1
    t.ndim = read_shape(shape, ne)
    count, low = 1, 0
    for i in range(t.ndim):
        count *= <object>ne[i]
        low = min(low, ne[i])
    if low < 0 or count * bits != e.view.len * 8:
        raise ShapeError(f"dlpack: {e.view.len} bytes for {tuple(shape)} elements of {bits} bits")
    for i in range(t.ndim):
        e.shape[t.ndim - 1 - i] = ne[i]
        e.strides[t.ndim - 1 - i] = step
        step *= ne[i] if count > 0 else 1
    if e.view.readonly and not versioned:
        raise BufferError("read-only memory needs a versioned capsule, which can say that it is")
    t.data = e.view.buf if count > 0 else NULL
    t.device_type, t.device_id = DL_CPU, 0
    t.code, t.bits, t.lanes = code, bits, 1
    t.shape, t.strides, t.byte_offset = e.shape, e.strides, 0
    e.plain.tensor = t[0]
    e.plain.owner = e.versioned.owner = e
    e.plain.deleter, e.versioned.deleter = delete_plain, delete_versioned
    e.versioned.major, e.versioned.minor = DLPACK_VERSION
    e.versioned.flags = (DL_READ_ONLY if e.view.readonly else 0) | (DL_IS_COPIED if copied else 0)
    if versioned:
        return PyCapsule_New(&e.versioned, VERSIONED, drop_versioned)
    return PyCapsule_New(&e.plain, PLAIN, drop_plain)


def dlpack_export(data, shape, uint8_t code, uint8_t bits, bint versioned, bint copied):
    """A capsule over the dense buffer `data`, which it holds until its deleter is called."""
    cdef DLExport *e = <DLExport *>PyMem_Calloc(1, sizeof(DLExport))
    if e == NULL:
        raise MemoryError
    try:
        PyObject_GetBuffer(data, &e.view, PyBUF_SIMPLE)
        return fill_export(e, shape, code, bits, versioned, copied)
    except BaseException:
        PyBuffer_Release(&e.view)
        PyMem_Free(e)
        raise


# ---- in ----------------------------------------------------------------------------------------


@cython.final
cdef class DLPackMemory:
    """What a capsule describes, and, once take() was called, a buffer over its memory.

    Reading the description touches no element. The producer's deleter is called when a taken
    one goes.
    """

    cdef object capsule
    cdef DLManaged *plain
    cdef DLManagedVersioned *versioned
    cdef bint taken
    cdef readonly tuple device    # (type, id)
    cdef readonly tuple dtype     # (code, bits, lanes)
    cdef readonly tuple shape
    cdef readonly object strides  # in elements; None: dense
    cdef readonly object address
    cdef readonly object nbytes   # of dense elements
    cdef readonly bint readonly

    def __cinit__(self, capsule):
        self.taken = False
        self.plain = NULL
        self.versioned = NULL
        if PyCapsule_IsValid(capsule, VERSIONED):
            self.versioned = <DLManagedVersioned *>PyCapsule_GetPointer(capsule, VERSIONED)
            if self.versioned.major != DLPACK_VERSION[0]:
                raise BufferError(f"the capsule has DLPack version {self.versioned.major}."
                                  f"{self.versioned.minor}; pyggml reads 1.x")
            self.readonly = (self.versioned.flags & DL_READ_ONLY) != 0
            self.read(&self.versioned.tensor)
        elif PyCapsule_IsValid(capsule, PLAIN):
            self.plain = <DLManaged *>PyCapsule_GetPointer(capsule, PLAIN)
            self.readonly = True  # it may be, and cannot say so
            self.read(&self.plain.tensor)
        else:
            raise not_a_capsule(capsule)
        self.capsule = capsule

    cdef int read(self, const DLTensor *t) except -1:
        if t.ndim < 0 or (t.ndim > 0 and t.shape == NULL):
            raise BufferError(f"the capsule is broken: ndim {t.ndim}, "
                              f"{'no ' if t.shape == NULL else ''}shape")
        if t.ndim > PYG_MAX_DIMS:
            raise ShapeError(f"at most {PYG_MAX_DIMS} axes, the capsule has {t.ndim}")
        self.device = (t.device_type, t.device_id)
        self.dtype = (t.code, t.bits, t.lanes)
        self.shape = tuple([t.shape[i] for i in range(t.ndim)])
        self.strides = None
        if t.strides != NULL:
            self.strides = tuple([t.strides[i] for i in range(t.ndim)])
        bits = <object>t.bits * t.lanes
        for n in self.shape:
            if n < 0:
                raise BufferError(f"the capsule is broken: shape {self.shape}")
            bits *= n
        self.nbytes = (bits + 7) // 8
        self.address = <object><uintptr_t>t.data + <object>t.byte_offset
        if self.nbytes > 0 and (t.data == NULL or self.nbytes > MOST_BYTES
                                or self.address + self.nbytes > UINTPTR_MAX):
            raise BufferError(f"the capsule is broken: {self.nbytes} bytes at "
                              f"{<uintptr_t>t.data:#x} + {t.byte_offset}")
        return 0

    def take(self):
        """Takes the capsule over; self is then its memory."""
        capsule = self.capsule
        with dlpack_lock:
            if self.taken:
                raise BufferError(USED_UP)
            if not PyCapsule_IsValid(capsule, PLAIN if self.versioned == NULL else VERSIONED):
                raise not_a_capsule(capsule)
            PyCapsule_SetName(capsule, USED_PLAIN if self.versioned == NULL else USED_VERSIONED)
            self.taken = True
        self.capsule = None  # not under the lock: its end is the producer's code

    def __getbuffer__(self, Py_buffer *view, int flags):
        if not self.taken:
            raise BufferError("the capsule was not taken")
        cdef Py_ssize_t n = self.nbytes
        cdef uintptr_t address = self.address if n > 0 else <uintptr_t>&self.plain
        PyBuffer_FillInfo(view, self, <void *>address, n, self.readonly, flags)

    def __dealloc__(self):
        if self.taken and self.plain != NULL and self.plain.deleter != NULL:
            self.plain.deleter(self.plain)
        elif self.taken and self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)


cdef object not_a_capsule(capsule):
    if PyCapsule_IsValid(capsule, USED_PLAIN) or PyCapsule_IsValid(capsule, USED_VERSIONED):
        return BufferError(USED_UP)
    return TypeError(f"a DLPack capsule is needed, got {type(capsule).__name__}")
