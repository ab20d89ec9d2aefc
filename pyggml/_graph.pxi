# Included by _core.pyx: graphs, their nodes, and building that is done whole or not at all.

# dtype and op are row numbers; src holds -1 for an operand left out; root is the node whose memory
# a view looks at, of others the node itself.
NodeInfo = namedtuple("NodeInfo", "op name shape dtype src root writable")


@cython.final
cdef class Graph:
    """A pyg_graph and the owners of the memory that its constants point to."""

    cdef pyg_graph *ptr
    cdef list owners  # (node id, buffer owner)
    cdef object lock  # nodes may be added from several threads

    def __cinit__(self):
        self.ptr = NULL
        self.owners = []
        self.lock = threading.RLock()
        check(pyg_graph_new(&self.ptr))

    def __dealloc__(self):
        pyg_graph_free(self.ptr)

    def __len__(self):
        with self.lock:
            return pyg_graph_n_nodes(self.ptr)

    def input(self, str name not None, int dtype, shape):
        """Adds an input slot; returns its id."""
        cdef int64_t ne[4]
        cdef int32_t node
        cdef int ndim = read_shape(shape, ne)
        raw = encode_name(name, "input")
        with self.lock:
            check(pyg_graph_input(self.ptr, raw, dtype, ndim, ne, &node))
        return node

    def const(self, buffer, int dtype, shape, str name not None, bint writable):
        """Captures the dense buffer as a constant of that dtype and shape; keeps it alive."""
        cdef int64_t ne[4]
        cdef int32_t node
        cdef pyg_tensor t
        cdef Py_buffer view
        if pyg_dtype_get(dtype) == NULL:
            raise ParameterError(f"const: there is no dtype number {dtype}")
        cdef int ndim = read_shape(shape, ne)
        check(pyg_tensor_init(&t, dtype, ndim, ne))
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        try:
            if <size_t>view.len != pyg_extent_bytes(&t):
                raise ShapeError(f"const '{name}': {view.len} bytes given, "
                                 f"{pyg_extent_bytes(&t)} needed for {tuple(shape)}")
            t.data = <char *>view.buf
            raw = encode_name(name, "const")
            owner = memoryview(buffer)  # an exported buffer cannot be resized or closed
            with self.lock:
                check(pyg_graph_const(self.ptr, &t, raw, writable, &node))
                self.owners.append((node, owner))
        finally:
            PyBuffer_Release(&view)
        return node

    def op(self, int op, srcs, dict params not None):
        """Applies op number `op` to the nodes srcs (-1: absent); returns the new node's id."""
        cdef int32_t src[PYG_MAX_SRC]
        cdef char packed[PYG_MAX_PARAM_BYTES]
        cdef int32_t node
        cdef Py_ssize_t n_src = len(srcs)
        row = pyg_op_get(op)
        if row == NULL:
            raise ParameterError(f"there is no op number {op}")
        if n_src > PYG_MAX_SRC:
            raise ParameterError(f"{row.name.decode()}: {n_src} operands given")
        for i in range(n_src):
            src[i] = index(srcs[i])
        pack_params(row, params, packed)
        with self.lock:
            check(pyg_graph_op(self.ptr, op, src, <int>n_src, packed, &node))
        return node

    def truncate(self, int32_t n_nodes):
        """Takes back the nodes from number n_nodes on, with what they keep alive."""
        with self.lock:
            check(pyg_graph_truncate(self.ptr, n_nodes))
            while self.owners and self.owners[-1][0] >= n_nodes:
                self.owners.pop()

    def set_name(self, int32_t node, str name not None):
        """Names a node in messages."""
        raw = encode_name(name, "name")
        with self.lock:
            check(pyg_graph_set_name(self.ptr, node, raw))

    def node(self, int32_t node):
        """What is known of a node."""
        cdef pyg_node_info info
        with self.lock:
            check(pyg_graph_node(self.ptr, node, &info))
            srcs = [info.src[i] for i in range(PYG_MAX_SRC)]
            while srcs and srcs[-1] == -1:
                srcs.pop()
            return NodeInfo(info.op, info.name.decode("utf-8", "replace"),
                            tensor_shape(info.tensor), <int>info.tensor.dtype, tuple(srcs),
                            info.root, bool(info.writable))


@cython.final
@cython.auto_pickle(False)
cdef class AllOrNone:
    """While it lasts no other thread adds nodes to a pyggml.Graph, and an exception takes back
    those added in it.

    In C, so that an exception of a signal handler cannot come between taking the lock and the
    statements that give it back.
    """

    cdef object graph
    cdef Py_ssize_t before

    def __init__(self, graph):
        self.graph = graph

    def __enter__(self):
        self.graph._lock.acquire()
        self.before = len(<Graph>self.graph._core)

    def __exit__(self, kind, *_):
        try:
            if kind is not None:
                self.graph._forget(self.before)
        finally:
            self.graph._lock.release()
